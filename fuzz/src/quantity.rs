//! A quantity that is taken keeps its text, and its value is one that its text can have.

use katabatch::domain::quantity::Quantity;

/// Reads `data` as a quantity.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(quantity) = Quantity::parse(text) else { return };
    assert_eq!(quantity.as_str(), text);
    assert_eq!(quantity.to_string(), text);
    // The value in thousandths is another spelling of the same.
    let spelled = Quantity::parse(&format!("{}m", quantity.milli())).expect("digits and `m`");
    assert_eq!(spelled, quantity);
    assert!(text.chars().any(|c| c.is_ascii_digit()));
    let zero =
        text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').all(|c| "0.".contains(c));
    assert_eq!(quantity.milli() == 0, zero, "nothing but zero is zero");
}
