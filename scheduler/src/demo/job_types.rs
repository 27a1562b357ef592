//! The job types of a demo: every tenth of the real ones that OSS-Fuzz's project files gave on
//! 2026-08-20.

const CSV: &str = include_str!("job_types.csv");

/// One real job type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobType {
    pub name: &'static str,
    pub project: &'static str,
    pub engine: &'static str,
    pub sanitizer: &'static str,
    pub architecture: &'static str,
    pub base_os_version: Option<&'static str>,
}

/// All of them, in the order of the file.
pub(super) fn all() -> Vec<JobType> {
    CSV.lines().skip(1).filter_map(read).collect()
}

fn read(line: &'static str) -> Option<JobType> {
    let mut columns = line.split(',');
    let mut next = || columns.next();
    Some(JobType {
        name: next()?,
        project: next()?,
        engine: next()?,
        sanitizer: next()?,
        architecture: next()?,
        base_os_version: {
            let _language = next()?;
            next().filter(|version| !version.is_empty())
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_names_its_project() {
        let all = all();
        assert_eq!(all.len(), CSV.lines().count() - 1);
        assert!(all.len() > 300);
        for job_type in &all {
            assert!(job_type.name.ends_with(job_type.project), "{job_type:?}");
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|j| j.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
