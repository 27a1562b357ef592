//! A pattern for names: `*` stands for any run of characters, everything else for itself.

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Glob(String);

impl Glob {
    /// The pattern that is written so. Every text is one.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` as a whole fits.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut left) = name.strip_prefix(first) else { return false };
        let parts: Vec<&str> = rest.split('*').collect();
        let Some((last, middle)) = parts.split_last() else { return true };
        for part in middle {
            // The first place is as good as any later one: what follows has the most left.
            let Some(at) = left.find(part) else { return false };
            left = left.get(at + part.len()..).unwrap_or_default();
        }
        left.ends_with(last)
    }
}

impl std::fmt::Display for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn a_star_stands_for_any_run_and_the_rest_for_itself() {
        for (pattern, name, expect) in [
            ("android-*", "android-pixel", true),
            ("android-*", "android-", true),
            ("android-*", "linux-android-x", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("*a", "a", true),
            ("ab*ba", "aba", false),
            ("a**", "abc", true),
            ("[a-z]?", "b1", false),
            ("ü*ß", "über-groß", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expect, "{pattern:?} {name:?}");
        }
    }
}
