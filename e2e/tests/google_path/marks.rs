//! Texts that must not show, in all the forms in which they could.

use anyhow::{Result, bail};

/// What stands before a text when it is put into base64: its letters depend on it.
const ALIGNMENTS: [&[u8]; 3] = [b"", b"x", b"xx"];
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A text to look for, of letters and digits so that no encoding is the same text again.
pub struct Mark {
    name: &'static str,
    forms: Vec<String>,
}

impl Mark {
    pub fn new(name: &'static str, text: &str) -> Self {
        let bytes = text.as_bytes();
        let each = |of: &dyn Fn(&u8) -> String, between: &str| {
            bytes.iter().map(of).collect::<Vec<_>>().join(between)
        };
        let mut forms = vec![
            text.to_owned(),
            each(&|byte| format!("%{byte:02x}"), ""),
            each(&|byte| format!("%{byte:02X}"), ""),
            each(&|byte| format!("{byte:02x}"), ""),
            each(&|byte| format!("{byte}"), ", "),
        ];
        forms.extend(ALIGNMENTS.map(|before| base64_inside(before, bytes)));
        Self { name, forms }
    }

    /// Fails with what is around it if `text` shows it in any form.
    pub fn must_not_be_in(&self, place: &str, text: &str) -> Result<()> {
        for form in &self.forms {
            if let Some(at) = text.find(form.as_str()) {
                let start = text.floor_char_boundary(at.saturating_sub(300));
                let end = text.ceil_char_boundary((at + form.len() + 100).min(text.len()));
                bail!("{} shows in {place}: …{}…", self.name, &text[start..end]);
            }
        }
        Ok(())
    }
}

/// The letters of base64 that the text alone decides, whatever follows it.
fn base64_inside(before: &[u8], text: &[u8]) -> String {
    let all = [before, text].concat();
    let letters = all.chunks_exact(3).flat_map(|three| {
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        [18, 12, 6, 0].map(|shift| char::from(BASE64[(bits >> shift & 63) as usize]))
    });
    // A letter that holds a bit of what stands before is not the text's own.
    letters.skip((before.len() * 8).div_ceil(6)).collect()
}

/// That each form is found: a search that finds nothing proves nothing.
pub fn finds_what_it_looks_for() -> Result<()> {
    let mark = Mark::new("mark", "5ec2e7");
    for shown in [
        "a5ec2e7b",
        "%35%65%63%32%65%37",
        "356563326537",
        "[53, 101, 99, 50, 101, 55]",
        "NWVjMmU3",
        "eDVlYzJlNw==",
        "eHg1ZWMyZTc=",
    ] {
        if mark.must_not_be_in("a text", shown).is_ok() {
            bail!("{shown} was not found");
        }
    }
    mark.must_not_be_in("a text", "5ec-2e7")
}
