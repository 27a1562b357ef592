//! What a template may not say, found in its source at load, with the line.
//!
//! Refused is whatever makes text that is not escaped, or that hides an inserted value from the
//! checks after the parse; and any use of a task's value but inserting it as it is, because the
//! template is rendered once for all tasks. Syntax is Tera's to judge: this reads a source that
//! Tera has parsed.

use super::escape::is_mark;
use super::variables::TASK_VALUES;

/// What is wrong, and on which line (from 1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceFault {
    pub line: usize,
    pub problem: String,
}

/// Tags that only choose or repeat text, or bind a value.
const TAGS: [&str; 10] =
    ["if", "elif", "else", "endif", "for", "endfor", "set", "set_global", "break", "continue"];

/// A word of an expression: an identifier, a string, or one other character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word<'a> {
    Ident(&'a str),
    Text,
    Sign(char),
}

/// Checks one template.
pub(super) fn check(source: &str) -> Result<(), SourceFault> {
    let mut rest = source;
    let fault = |rest: &str, problem: String| {
        let line = source[..source.len() - rest.len()].matches('\n').count() + 1;
        Err(SourceFault { line, problem })
    };
    if let Some(at) = source.find(is_mark) {
        let problem = "holds a character of U+E000 to U+E002, which mark inserted values here";
        return fault(&source[at..], problem.to_owned());
    }
    while let Some(at) =
        rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min()
    {
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("{#") {
            rest = comment.split_once("#}").map_or("", |(_, after)| after);
            continue;
        }
        if let Some(after) = skip_raw(rest) {
            rest = after;
            continue;
        }
        let output = rest.starts_with("{{");
        let (words, after) = words(&rest[2..], if output { "}}" } else { "%}" });
        let judged = if output { check_output(&words) } else { check_tag(&words) };
        if let Err(problem) = judged.and_then(|()| check_words(&words)) {
            return fault(rest, problem);
        }
        rest = after;
    }
    Ok(())
}

/// What follows `{% raw %} … {% endraw %}`, if `text` starts with it.
fn skip_raw(text: &str) -> Option<&str> {
    fn tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let inner = text.strip_prefix("{%")?;
        let inner = inner.strip_prefix('-').unwrap_or(inner).trim_start();
        let inner = inner.strip_prefix(name)?.trim_start();
        inner.strip_prefix('-').unwrap_or(inner).strip_prefix("%}")
    }
    let mut rest = tag(text, "raw")?;
    loop {
        rest = &rest[rest.find("{%")?..];
        match tag(rest, "endraw") {
            Some(after) => return Some(after),
            None => rest = &rest[2..],
        }
    }
}

/// The words up to the end of the tag or output, and what follows it. As in Tera, strings stand in
/// `"`, `'` or backquotes, and a backslash escapes the next character.
fn words<'a>(text: &'a str, close: &str) -> (Vec<Word<'a>>, &'a str) {
    let mut words = Vec::new();
    let mut rest = text;
    // Tera ends an expression at the first closing mark that stands where a word could begin.
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(close) {
            return (words, after);
        }
        let len = if matches!(c, '"' | '\'' | '`') {
            words.push(Word::Text);
            string_len(rest, c)
        } else if c.is_ascii_alphabetic() || c == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let len = end.unwrap_or(rest.len());
            words.push(Word::Ident(&rest[..len]));
            len
        } else {
            if !c.is_whitespace() {
                words.push(Word::Sign(c));
            }
            c.len_utf8()
        };
        rest = &rest[len..];
    }
    (words, rest)
}

fn string_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A task's value may only be inserted as it is.
fn check_output(words: &[Word<'_>]) -> Result<(), String> {
    let bare: Vec<Word<'_>> =
        words.iter().copied().filter(|word| *word != Word::Sign('-')).collect();
    match bare.as_slice() {
        [Word::Ident("task"), Word::Sign('.'), Word::Ident(value)] => {
            if TASK_VALUES.contains(value) {
                return Ok(());
            }
            Err(format!("there is no `task.{value}`; a task has {}", TASK_VALUES.join(", ")))
        }
        _ => no_task(words),
    }
}

fn check_tag(words: &[Word<'_>]) -> Result<(), String> {
    let mut words = words;
    if let [Word::Sign('-'), rest @ ..] = words {
        words = rest;
    }
    match words {
        [Word::Ident("set" | "set_global"), Word::Ident(name), rest @ ..]
            if !rest.starts_with(&[Word::Sign('=')]) =>
        {
            Err(format!(
                "`set {name}` without `=` captures text that is not escaped again; write `set {name} = …`"
            ))
        }
        [Word::Ident(tag), ..] if TAGS.contains(tag) => no_task(words),
        [Word::Ident(tag), ..] => Err(format!(
            "the tag `{tag}` is not for templates of Jobs; use only {}",
            TAGS.join(", ")
        )),
        _ => Ok(()),
    }
}

fn no_task(words: &[Word<'_>]) -> Result<(), String> {
    let used = words.iter().enumerate().any(|(at, word)| {
        *word == Word::Ident("task") && (at == 0 || words.get(at - 1) != Some(&Word::Sign('.')))
    });
    if !used {
        return Ok(());
    }
    Err("a value of the task is used other than as `{{ task.… }}`; the template is rendered once \
         for all tasks of a workload, so such a value can only be inserted, as it is"
        .to_owned())
}

/// No filter that marks text as needing no escape.
fn check_words(words: &[Word<'_>]) -> Result<(), String> {
    for pair in words.windows(2) {
        if let [Word::Sign('|'), Word::Ident(filter @ ("safe" | "escape"))] = pair {
            return Err(format!(
                "the filter `{filter}` lets text through unescaped; leave it out: every value is \
                 escaped to a whole YAML scalar"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(source: &str, line: usize, because: &str) {
        let fault = check(source).expect_err(source);
        assert_eq!(fault.line, line, "{source}");
        assert!(fault.problem.contains(because), "{source}: {}", fault.problem);
    }

    #[test]
    fn what_lets_text_through_unescaped_is_refused_with_its_line() {
        refused("a\n{{ image | safe }}", 2, "`safe`");
        refused("{{ image|safe }}", 1, "`safe`");
        refused("{{ image | trim | safe | upper }}", 1, "`safe`");
        refused("{{ '}}' ~ image\n | \n safe }}", 1, "`safe`");
        refused("{{ \"\\\"}}\" | safe }}", 1, "`safe`");
        refused("{% if image | safe %}{% endif %}", 1, "`safe`");
        refused("{% for x in env | safe %}{% endfor %}", 1, "`safe`");
        refused("{% set x = image | safe %}", 1, "`safe`");
        refused("{% set x = {'a': {'b': 1}} %}{{ image | safe }}", 1, "`safe`");
        refused("{% set x = {'a': {'b': image | safe}} %}", 1, "`safe`");
        refused("{{ image | escape | replace(from='a', to='b') }}", 1, "`escape`");
        refused("{#-\n-#}\n{% filter safe %}{% endfilter %}", 3, "`filter`");
        refused("{%- set x -%}{{ image }}{% endset %}", 1, "captures");
        refused("{% component c() %}{% endcomponent %}", 1, "`component`");
        refused("{% include 'kata.yaml.tera' %}", 1, "`include`");
        refused("{% block b %}{% endblock %}", 1, "`block`");
        refused("x: \u{E000}", 1, "U+E000");
    }

    #[test]
    fn a_task_s_value_is_only_inserted_as_it_is() {
        for source in [
            "{{ task.url | upper }}",
            "{{ 'x' ~ task.url }}",
            "{{ task }}",
            "{{ task['url'] }}",
            "{% if task.url is containing('x') %}{% endif %}",
            "{% set u = task.url %}",
            "{% for c in task.url %}{% endfor %}",
        ] {
            refused(source, 1, "once");
        }
        refused("{{ task.uri }}", 1, "url");
    }

    #[test]
    fn words_in_strings_comments_and_raw_text_are_only_words() {
        for source in [
            "{{ 'x | safe' }}",
            "{# {{ image | safe }} #}",
            "{% raw %}{{ image | safe }}{% if %}{% endraw %}{{ image }}",
            "image | safe",
            "{{ task.url }}{{- task.name -}}",
            "{{ workload.task }}",
            "{% set x = image ~ 'y' %}{{ x }}",
            "{%- if a -%}{% else %}{% endif %}",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
        assert_eq!(check(include_str!("../../../templates/kata.yaml.tera")), Ok(()));
        assert_eq!(check(include_str!("../../../templates/standard.yaml.tera")), Ok(()));
    }
}
