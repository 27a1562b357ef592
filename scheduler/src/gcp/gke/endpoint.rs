//! How the API server of a cluster is reached, from what GKE says of it: pure.
//!
//! An address's certificate is signed by the cluster's own CA; a DNS endpoint's
//! (`gke-….gke.goog`) by a public one, and no CA of the cluster would know it.

use std::net::{IpAddr, Ipv6Addr};

use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

/// A cluster in GKE's words, as far as they are needed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) location: String,
    pub(super) status: String,
    endpoint: String,
    master_auth: MasterAuth,
    control_plane_endpoints_config: Endpoints,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MasterAuth {
    cluster_ca_certificate: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoints {
    dns_endpoint_config: DnsEndpoint,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DnsEndpoint {
    endpoint: String,
    allow_external_traffic: bool,
}

/// How an API server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// `https://HOST`.
    pub server: String,
    /// The CAs that signed its certificate, as DER; `None`: public ones.
    pub ca: Option<Vec<Vec<u8>>>,
}

/// The endpoint that GKE names first, which is what ClusterFuzz takes; the DNS endpoint where the
/// cluster has no other.
pub(super) fn reach(cluster: &Described) -> Result<Reached, String> {
    let dns = &cluster.control_plane_endpoints_config.dns_endpoint_config;
    let endpoint = if cluster.endpoint.is_empty() && dns.allow_external_traffic {
        dns.endpoint.trim()
    } else {
        cluster.endpoint.trim()
    };
    if endpoint.is_empty() {
        return Err("it has no endpoint (yet)".to_owned());
    }
    let host = host(endpoint)?;
    let ca = &cluster.master_auth.cluster_ca_certificate;
    if is_dns_endpoint(endpoint) {
        return Ok(Reached { server: format!("https://{host}"), ca: None });
    }
    if ca.is_empty() {
        return Err(format!("GKE tells no CA for its endpoint {endpoint}"));
    }
    Ok(Reached { server: format!("https://{host}"), ca: Some(certificates(ca)?) })
}

/// A host as it stands in a URL: an IPv6 address in brackets.
fn host(endpoint: &str) -> Result<String, String> {
    if let Ok(address) = endpoint.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let url = url::Url::parse(&format!("https://{endpoint}"));
    let wrong = || format!("its endpoint `{endpoint}` is no host");
    let url = url.map_err(|_| wrong())?;
    let rest = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    if rest || !url.username().is_empty() || url.host_str().is_none() {
        return Err(wrong());
    }
    Ok(endpoint.to_owned())
}

/// A name under `gke.goog`: Google's own certificate.
fn is_dns_endpoint(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.parse::<IpAddr>().is_err() && host.trim_end_matches('.').ends_with(".gke.goog")
}

/// The certificates of base64 of PEM.
fn certificates(ca: &str) -> Result<Vec<Vec<u8>>, String> {
    let wrong = |why: String| format!("its CA (masterAuth.clusterCaCertificate) {why}");
    let compact: String = ca.split_whitespace().collect();
    let pem: ByteString =
        serde_json::from_value(compact.into()).map_err(|_| wrong("is no base64".to_owned()))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.0).collect();
    let read = read.map_err(|error| wrong(format!("is no PEM: {error}")))?;
    if read.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    // Found out here, and not at the first connection.
    let mut roots = rustls::RootCertStore::empty();
    for certificate in &read {
        let added = roots.add(certificate.clone());
        added.map_err(|error| wrong(format!("is no certificate: {error}")))?;
    }
    Ok(read.iter().map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A self-signed CA of nobody, valid until 2126.
    const PEM: &str = include_str!("ca.pem");

    pub(in super::super) fn ca() -> String {
        let encoded = serde_json::to_value(ByteString(PEM.as_bytes().to_vec())).expect("base64");
        encoded.as_str().expect("text").to_owned()
    }

    fn described(cluster: serde_json::Value) -> Result<Reached, String> {
        reach(&serde_json::from_value(cluster).expect("a cluster"))
    }

    #[track_caller]
    fn check(endpoint: &str, ca: Option<String>, server: &str, own_ca: bool) {
        let auth = ca.map(|ca| json!({"clusterCaCertificate": ca})).unwrap_or(json!({}));
        let reached = described(json!({"endpoint": endpoint, "masterAuth": auth}));
        let reached = reached.expect("reachable");
        assert_eq!((reached.server.as_str(), reached.ca.is_some()), (server, own_ca));
    }

    #[test]
    fn an_ipv4_endpoint_is_known_by_the_clusters_own_ca() {
        check("192.0.2.7", Some(ca()), "https://192.0.2.7", true);
        check("127.0.0.1:6443", Some(ca()), "https://127.0.0.1:6443", true);
    }

    #[test]
    fn a_dns_endpoint_is_known_by_public_roots() {
        let name = "gke-0123.us-central1.gke.goog";
        check(name, None, &format!("https://{name}"), false);
        check(name, Some(ca()), &format!("https://{name}"), false);
    }

    #[test]
    fn an_ipv6_endpoint_is_bracketed_and_known_by_the_clusters_own_ca() {
        check("2001:db8::1", Some(ca()), "https://[2001:db8::1]", true);
    }

    #[test]
    fn a_dns_endpoint_serves_where_there_is_no_other_and_it_takes_traffic() {
        let cluster = |allowed: bool| {
            described(json!({"controlPlaneEndpointsConfig": {"dnsEndpointConfig":
                {"endpoint": "gke-1.x.gke.goog", "allowExternalTraffic": allowed}}}))
        };
        assert_eq!(cluster(true).expect("reachable").server, "https://gke-1.x.gke.goog");
        assert!(cluster(false).expect_err("closed").contains("no endpoint"));
    }

    #[test]
    fn a_ca_that_is_none_is_an_error_that_says_so() {
        let encoded = |text: &str| {
            let value = serde_json::to_value(ByteString(text.as_bytes().to_vec()));
            value.expect("base64").as_str().expect("text").to_owned()
        };
        let broken = PEM.replace('M', "!");
        let short = "-----BEGIN CERTIFICATE-----\nTUlJ\n-----END CERTIFICATE-----\n";
        for (ca, expect) in [
            ("%%%".to_owned(), "no base64"),
            (encoded(&broken), "no PEM"),
            (encoded("hello"), "no certificate"),
            (encoded(short), "no certificate"),
            (String::new(), "no CA"),
        ] {
            let auth = json!({"clusterCaCertificate": ca});
            let error = described(json!({"endpoint": "192.0.2.7", "masterAuth": auth}));
            let error = error.expect_err("no CA");
            assert!(error.contains(expect), "{error} lacks {expect}");
        }
    }

    #[test]
    fn an_endpoint_that_is_no_host_is_an_error() {
        for endpoint in ["a/b", "user@host", "a b", "x?y", ""] {
            let auth = json!({"clusterCaCertificate": ca()});
            assert!(described(json!({"endpoint": endpoint, "masterAuth": auth})).is_err());
        }
    }
}
