//! Credentials files: a service account's key, and what `gcloud auth application-default login`
//! leaves.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use katabatch_e2e::Case;
use katabatch_e2e::google_rest::EMAIL;
use serde_json::{Value, json};

use crate::SOON;
use crate::world::World;

/// Runs with this file; gives what was sent to the token endpoint.
async fn run_with(case: Case, mut file: Value) -> Result<BTreeMap<String, String>> {
    let mut world = World::new(case).await?;
    file["token_uri"] = json!(format!("http://{}/oauth", world.google.host()));
    let path = world.farm.dir().join("credentials.json");
    std::fs::write(&path, file.to_string())?;
    world.credentials = path.display().to_string();
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.farm.fill(2).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    ensure!(process.end(SOON).await?.code == Some(0));
    let sent = world.google.requests("/oauth");
    ensure!(sent.len() == 1 && world.google.token_requests() == 0, "{sent:?}");
    let form = sent[0].body.as_str().context("a form")?;
    // None of the values has anything that a form encodes, but for those that nobody reads here.
    Ok(form
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect())
}

fn claims(assertion: &str) -> Result<Value> {
    let part = assertion.split('.').nth(1).context("three parts")?;
    let mut base64 = part.replace('-', "+").replace('_', "/");
    while base64.len() % 4 != 0 {
        base64.push('=');
    }
    let bytes: ByteString = serde_json::from_value(json!(base64)).context("base64")?;
    serde_json::from_slice(&bytes.0).context("JSON")
}

pub async fn a_key_file_is_exchanged_for_a_token_of_the_right_scope(case: Case) -> Result<()> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).context("an RSA key")?;
    let file = json!({
        "type": "service_account",
        "project_id": "p",
        "client_email": EMAIL,
        "private_key_id": "k1",
        "private_key": key.serialize_pem(),
    });
    let form = run_with(case, file).await?;
    ensure!(form["grant_type"].ends_with("jwt-bearer"), "{form:?}");
    let claims = claims(&form["assertion"])?;
    ensure!(claims["iss"] == EMAIL, "{claims}");
    ensure!(claims["scope"] == "https://www.googleapis.com/auth/cloud-platform", "{claims}");
    Ok(())
}

pub async fn a_persons_login_is_used(case: Case) -> Result<()> {
    let file = json!({
        "type": "authorized_user",
        "client_id": "client",
        "client_secret": "hush",
        "refresh_token": "again",
    });
    let form = run_with(case, file).await?;
    for (key, value) in [
        ("grant_type", "refresh_token"),
        ("client_id", "client"),
        ("client_secret", "hush"),
        ("refresh_token", "again"),
    ] {
        ensure!(form[key] == value, "{form:?}");
    }
    Ok(())
}
