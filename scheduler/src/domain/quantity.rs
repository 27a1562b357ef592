//! Kubernetes resource quantities (`3.75Gi`, `500m`), compared by value.
//!
//! The API server may answer with another spelling of what was asked (`2040109465600m` for
//! `1.9Gi`), so the text is kept for rendering and the value for comparing.

use std::cmp::Ordering;
use std::fmt;

/// A quantity that was checked when it was read.
#[derive(Clone)]
pub struct Quantity {
    text: String,
    /// The value in thousandths, rounded up, as Kubernetes does below its smallest unit.
    milli: u128,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no Kubernetes quantity; write a number with an optional suffix, such as 2, 500m, 1.9Gi or 10G"
)]
pub struct BadQuantity(String);

impl Quantity {
    /// Reads `[number][suffix]`: suffixes m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or an
    /// exponent (Kubernetes, `resource.Quantity`). Negative ones are refused: nothing here can
    /// have a negative size.
    ///
    /// # Errors
    /// [`BadQuantity`] names the text.
    pub fn parse(text: &str) -> Result<Self, BadQuantity> {
        let milli = milli_of(text).ok_or_else(|| BadQuantity(text.to_owned()))?;
        Ok(Self { text: text.to_owned(), milli })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value in thousandths of the unit (bytes, cores).
    pub fn milli(&self) -> u128 {
        self.milli
    }
}

fn milli_of(text: &str) -> Option<u128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mantissa: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (times, exponent): (u128, i32) = match suffix {
        "" => (1, 0),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    // In thousandths, with the fraction's digits moved back.
    let exponent = exponent.checked_add(3)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scaled = mantissa.checked_mul(times)?;
    if exponent >= 0 {
        scaled.checked_mul(10_u128.checked_pow(exponent.unsigned_abs())?)
    } else {
        match 10_u128.checked_pow(exponent.unsigned_abs()) {
            Some(divisor) => Some(scaled.div_ceil(divisor)),
            None => Some(u128::from(scaled > 0)),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.milli == other.milli
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.milli.cmp(&other.milli)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli(text: &str) -> Option<u128> {
        Quantity::parse(text).ok().map(|q| q.milli())
    }

    #[test]
    fn another_spelling_of_a_value_is_equal() {
        let rendered = Quantity::parse("1.9Gi").expect("a quantity");
        let returned = Quantity::parse("2040109465600m").expect("a quantity");
        assert_eq!(rendered, returned);
        assert!(Quantity::parse("4Gi").expect("q") > Quantity::parse("3.75Gi").expect("q"));
    }

    #[test]
    fn every_suffix_has_its_value() {
        assert_eq!(milli("2"), Some(2_000));
        assert_eq!(milli("500m"), Some(500));
        assert_eq!(milli("0.5"), Some(500));
        assert_eq!(milli(".5k"), Some(500_000));
        assert_eq!(milli("1e3"), Some(1_000_000));
        assert_eq!(milli("1E"), Some(1_000_000_000_000_000_000_000));
        assert_eq!(milli("0.0001"), Some(1));
        for bad in ["", "x", "1Gb", "-1", "1 Gi", "1.2.3", ".", "9e99", "1e"] {
            assert_eq!(milli(bad), None, "{bad}");
        }
    }
}
