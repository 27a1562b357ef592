//! One mapping of `batch.yaml`: what tasks of one platform and price run as.

use std::collections::BTreeMap;

use crate::domain::name::is_dns_subdomain;
use crate::domain::workload::Account;
use crate::located::reading::{Field, Section};

/// A mapping, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// The image where no versioned one fits.
    pub docker_image: String,
    /// Images by base OS version.
    pub versioned_docker_images: BTreeMap<String, String>,
    /// `CLUSTERFUZZ_RELEASE`; `prod` where nothing is said.
    pub clusterfuzz_release: String,
    /// The disk of GCP Batch's VMs, in GB; 0 counts as unset, as in Python.
    pub disk_size_gb: Option<u64>,
    /// That disk's type.
    pub disk_type: Option<String>,
    /// Whom its pods run as.
    pub account: Account,
    /// Whether its VMs may be taken away.
    pub preemptible: bool,
    /// The type of its VMs.
    pub machine_type: Option<String>,
    /// What its VMs start with.
    pub user_data: Option<String>,
    /// Whether GCP Batch tries a failed task again.
    pub retry: bool,
    /// Whether its work runs under Kata. Only a plain `false` says no: an empty value is a yes.
    pub is_kata: bool,
    /// Where its VMs may be, by weight.
    pub subconfigs: Vec<WeightedSubconfig>,
}

/// A subconfig by name, with its share.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedSubconfig {
    /// The name among the top-level `subconfigs`.
    pub name: String,
    /// Its share of the whole.
    pub weight: f64,
}

impl Mapping {
    /// Reads one mapping; `warn` gets what is odd but does no harm.
    pub(super) fn read(field: &Field<'_>, warn: &mut dyn FnMut(u32, String)) -> Option<Self> {
        let section = field.section()?;
        let text = |key| section.set(key).and_then(|f| f.text()).map(str::to_owned);
        let boolean = |key| section.set(key).and_then(|f| f.python_boolean());
        let image = section.required("docker_image", "write the image of its workers");
        let email = section.required(
            "service_account_email",
            "write the email of the account that its workers run as",
        );
        let account = email.and_then(|f| read_account(&f, warn));
        let mapping = Self {
            docker_image: image.and_then(|f| read_image(&f)).unwrap_or_default(),
            versioned_docker_images: read_images(&section),
            clusterfuzz_release: text("clusterfuzz_release").unwrap_or_else(|| "prod".into()),
            disk_size_gb: section
                .set("disk_size_gb")
                .and_then(|f| f.whole(0..=1_000_000_u64))
                .filter(|size| *size > 0),
            disk_type: text("disk_type"),
            account: account.unwrap_or(Account::Existing { name: String::new() }),
            preemptible: boolean("preemptible").unwrap_or(false),
            machine_type: text("machine_type"),
            user_data: text("user_data"),
            retry: boolean("retry").unwrap_or(false),
            is_kata: boolean("is_kata").unwrap_or(true),
            subconfigs: read_subconfigs(&section).unwrap_or_default(),
        };
        for (key, line) in section.unknown() {
            warn(
                line,
                format!("{}.{key}: is not a known key; it counts for nothing", field.path()),
            );
        }
        Some(mapping)
    }
}

fn read_image(field: &Field<'_>) -> Option<String> {
    field.read(|text| {
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let problem = "contains white space or control characters";
            return Err((problem.into(), "write an image such as gcr.io/project/image:tag".into()));
        }
        Ok(text.to_owned())
    })
}

fn read_images(section: &Section<'_>) -> BTreeMap<String, String> {
    let images = section.set("versioned_docker_images").and_then(|f| f.entries());
    images
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(version, field)| Some((version.to_owned(), read_image(&field)?)))
        .collect()
}

fn read_subconfigs(section: &Section<'_>) -> Option<Vec<WeightedSubconfig>> {
    let items = section.set("subconfigs")?.list()?;
    let one = |field: &Field<'_>| {
        let section = field.section()?;
        let name = section.required("name", "name one of the top-level subconfigs");
        let weight = section.set("weight").and_then(|f| f.number(0.0..=1e9)).unwrap_or(1.0);
        Some(WeightedSubconfig { name: name?.text()?.to_owned(), weight })
    };
    Some(items.iter().filter_map(one).collect())
}

fn read_account(field: &Field<'_>, warn: &mut dyn FnMut(u32, String)) -> Option<Account> {
    let account = field.read(account)?;
    if let Account::Google { email, .. } = &account
        && email.ends_with("-compute@developer.gserviceaccount.com")
    {
        warn(
            field.line(),
            format!(
                "{}: `{email}` is the project's default compute account, which may do far more \
                 than a worker needs",
                field.path()
            ),
        );
    }
    Some(account)
}

/// Reads a `service_account_email`: with `@` a Google account, whose part before the `@` names the
/// Kubernetes account; without, an existing Kubernetes account.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn account(text: &str) -> Result<Account, (String, String)> {
    let hint = || {
        "write NAME@PROJECT.iam.gserviceaccount.com, or the name of an account that is \
                   there in the namespace"
            .to_owned()
    };
    let (name, domain) = match text.split_once('@') {
        Some((name, domain)) => (name, Some(domain)),
        None => (text, None),
    };
    if !is_dns_subdomain(name) {
        let problem = format!(
            "`{name}` can't be the name of a ServiceAccount: lower-case letters, digits, `-` and \
             `.` alone"
        );
        return Err((problem, hint()));
    }
    if name == "default" {
        let problem = "`default` is the account that every pod of the namespace has";
        return Err((problem.into(), "give the workers an account of their own".into()));
    }
    match domain {
        None => Ok(Account::Existing { name: name.to_owned() }),
        Some(domain) if is_dns_subdomain(domain) => {
            Ok(Account::Google { name: name.to_owned(), email: text.to_owned() })
        }
        Some(_) => Err((format!("`{text}` is no email of an account"), hint())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_email_names_a_google_account_and_a_bare_name_an_existing_one() {
        let google = |name: &str, email: &str| {
            Some(Account::Google { name: name.into(), email: email.into() })
        };
        for (text, expect) in [
            ("w@p.iam.gserviceaccount.com", google("w", "w@p.iam.gserviceaccount.com")),
            (
                "123456-compute@developer.gserviceaccount.com",
                google("123456-compute", "123456-compute@developer.gserviceaccount.com"),
            ),
            ("unpriv-sa", Some(Account::Existing { name: "unpriv-sa".into() })),
            ("Fuzz_Worker@x", None),
            ("fuzz_worker", None),
            ("default", None),
            ("default@p.iam.gserviceaccount.com", None),
            ("w@", None),
            ("@p", None),
            ("w@a@b", None),
            ("w@a b", None),
        ] {
            assert_eq!(account(text).ok(), expect, "{text}");
        }
    }
}
