//! Lengths of time as people write them: `90s`, `10m`, `1h30m`.

use std::time::Duration;

/// Reads `1h30m`, `90s`, `250ms`, `2d`: whole numbers with units, largest first is not asked for.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let part = Duration::from_millis(number.checked_mul(millis)?);
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_numbers_with_units() {
        for (text, expect) in [
            ("90s", Some(90_000)),
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("26h", Some(93_600_000)),
            ("250ms", Some(250)),
            ("1d", Some(86_400_000)),
            ("", None),
            ("10", None),
            ("m", None),
            ("1.5h", None),
            ("-1s", None),
            ("1h 30m", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            let got = parse_duration(text).map(|d| d.as_millis());
            assert_eq!(got, expect, "{text}");
        }
    }
}
