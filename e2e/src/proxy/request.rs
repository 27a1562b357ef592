//! What a request asks of the API server, told from its method and path alone.

use hyper::{Method, Uri};

/// One request that reached the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, or nothing.
    pub query: String,
    /// Kubernetes' word for it: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The resource, with its subresource (`jobs`, `jobs/status`); for a path that is
    /// none, the path.
    pub resource: String,
    /// The namespace, or nothing.
    pub namespace: String,
    /// The object's name, or nothing.
    pub name: String,
    /// The status that was answered; none while it is under way or was dropped.
    pub status: Option<u16>,
    /// The rule's action that was applied, if any.
    pub fault: Option<&'static str>,
}

impl Request {
    pub(super) fn read(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        let query = uri.query().unwrap_or_default();
        let Target { resource, namespace, name } = Target::read(path);
        let verb = match method.as_str() {
            "GET" | "HEAD" if is_true(query, "watch") => "watch",
            "GET" | "HEAD" if name.is_empty() && path.starts_with("/api") => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            _ => "other",
        };
        Self {
            method: method.clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            verb,
            resource,
            namespace,
            name,
            status: None,
            fault: None,
        }
    }

    /// Whether it asks for a page of a list after the first one.
    pub fn continues_a_list(&self) -> bool {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .any(|(key, value)| key == "continue" && !value.is_empty())
    }
}

fn is_true(query: &str, key: &str) -> bool {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "true")))
        .any(|(name, value)| name == key && matches!(value, "1" | "true"))
}

struct Target {
    resource: String,
    namespace: String,
    name: String,
}

impl Target {
    fn read(path: &str) -> Self {
        let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let inside = match segments.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        let (namespace, inside) = match inside {
            // A namespace itself has two subresources.
            ["namespaces", name, "status" | "finalize"] => (*name, inside),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", inside),
        };
        let (resource, name) = match inside {
            [] => (path.to_owned(), ""),
            [resource] => ((*resource).to_owned(), ""),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource, name, rest @ ..] => (format!("{resource}/{}", rest.join("/")), *name),
        };
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, uri: &'static str, expected: [&str; 4]) {
        let seen = Request::read(&method, &Uri::from_static(uri));
        let seen = [seen.verb, &seen.resource, &seen.namespace, &seen.name];
        assert_eq!(seen, expected, "{method} {uri}");
    }

    #[test]
    fn a_path_says_what_is_asked() {
        let jobs = "/apis/batch/v1/namespaces/fuzz/jobs?fieldManager=k";
        check(Method::POST, jobs, ["create", "jobs", "fuzz", ""]);
        check(Method::GET, "/apis/batch/v1/jobs?limit=2", ["list", "jobs", "", ""]);
        check(Method::GET, "/api/v1/pods?&watch=true", ["watch", "pods", "", ""]);
        check(Method::GET, "/api/v1/pods?watch=false", ["list", "pods", "", ""]);
        check(
            Method::PATCH,
            "/apis/batch/v1/namespaces/fuzz/jobs/a/status",
            ["patch", "jobs/status", "fuzz", "a"],
        );
        check(Method::DELETE, "/api/v1/namespaces/fuzz", ["delete", "namespaces", "", "fuzz"]);
        check(Method::DELETE, jobs, ["deletecollection", "jobs", "fuzz", ""]);
        check(Method::GET, "/readyz", ["get", "/readyz", "", ""]);
    }

    #[test]
    fn a_later_page_is_told_from_the_first() {
        let page = |uri| Request::read(&Method::GET, &Uri::from_static(uri)).continues_a_list();
        assert!(page("/api/v1/pods?limit=2&continue=abc"));
        assert!(!page("/api/v1/pods?limit=2&continue="));
    }
}
