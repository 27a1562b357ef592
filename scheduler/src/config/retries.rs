//! `retries`: how often a task is tried, and what is done about each kind of end.

use std::collections::BTreeMap;

use crate::domain::end::{EndKind, RetryRule};
use crate::domain::retry::{RetryRules, has_rule};
use crate::located::reading::Field;

/// More than these would only hide that something is broken.
const MOST: u32 = 20;

pub(super) fn read(field: Option<Field<'_>>) -> RetryRules {
    let mut rules = RetryRules::default();
    let Some(section) = field.and_then(|f| f.section()) else { return rules };
    if let Some(attempts) = section.get("attempts").and_then(|f| f.whole(1..=MOST)) {
        rules.attempts = attempts;
    }
    for (command, field) in section.get("rules").and_then(|f| f.entries()).unwrap_or_default() {
        let own = read_rules(&field);
        if command == "default" {
            rules.all = own;
        } else {
            rules.commands.insert(command.to_owned(), own);
        }
    }
    section.finish();
    rules
}

fn read_rules(field: &Field<'_>) -> BTreeMap<EndKind, RetryRule> {
    let mut rules = BTreeMap::new();
    for (kind, field) in field.entries().unwrap_or_default() {
        let Some(kind) = EndKind::parse(kind).filter(|kind| has_rule(*kind)) else {
            let known =
                EndKind::ALL.iter().filter(|kind| has_rule(**kind)).map(|kind| kind.label());
            let known = known.collect::<Vec<_>>().join(", ");
            field.fault("is no kind of end that has a rule", &format!("write one of {known}"));
            continue;
        };
        let rule = field.read(|text| {
            RetryRule::parse(text).ok_or_else(|| {
                (format!("`{text}` is no rule"), "write retry, hold or never".to_owned())
            })
        });
        rules.extend(rule.map(|rule| (kind, rule)));
    }
    rules
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;
    use super::*;

    fn check(text: &str, expect: Result<RetryRules, &str>) {
        let text = format!("apiVersion: katabatch.dev/v1alpha1\nretries: {text}\n");
        match (Config::parse(Path::new("c.yaml"), &text), expect) {
            (Ok(config), Ok(rules)) => assert_eq!(config.retries, rules),
            (Err(errors), Err(part)) => {
                assert!(errors.to_string().contains(part), "{errors}");
            }
            (found, _) => panic!("{:?}", found.map(|config| config.retries)),
        }
    }

    #[test]
    fn rules_are_by_command_and_kind_and_what_can_have_none_is_told() {
        check(
            "{attempts: 5, rules: {default: {deadline: retry}, fuzz: {oom: never}}}",
            Err("retries.rules.fuzz.oom"),
        );
        check(
            "{attempts: 5, rules: {default: {deadline: retry}, fuzz: {out_of_memory: hold}}}",
            Ok(RetryRules {
                attempts: 5,
                all: [(EndKind::Deadline, RetryRule::Retry)].into(),
                commands: [("fuzz".to_owned(), [(EndKind::OutOfMemory, RetryRule::Hold)].into())]
                    .into(),
            }),
        );
        check("{rules: {fuzz: {deadline: perhaps}}}", Err("`perhaps` is no rule"));
        check("{rules: {fuzz: {unknown: retry}}}", Err("is no kind of end that has a rule"));
        check("{attempts: 0}", Err("retries.attempts"));
    }
}
