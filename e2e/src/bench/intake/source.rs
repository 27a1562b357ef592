//! The two queues that are compared: each with a farm of its own over the same job types.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use katabatch::queue::spool::record::NewMessage;
use serde::Serialize;
use tempfile::TempDir;

use super::super::{UNLIMITED, plan};
use crate::ControlPlane;
use crate::farm::Farm;
use crate::google::{Google, TASKS, farm};

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Spool,
    PubSub,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spool => "spool",
            Self::PubSub => "Pub/Sub",
        })
    }
}

/// A queue, and the farm that takes from it.
#[derive(Clone)]
pub enum Source {
    Spool(Arc<Farm>),
    PubSub(Arc<Google>, Arc<TempDir>),
}

impl Source {
    /// A farm in `namespace`, its queue empty.
    pub async fn new(
        plane: &ControlPlane,
        namespace: &str,
        google: &Arc<Google>,
        kind: Kind,
    ) -> Result<Self> {
        let kubeconfig = plane.kubeconfig_for(&plane.admin_token().await?, namespace, None)?;
        let plan = plan(UNLIMITED);
        if kind == Kind::Spool {
            return Ok(Self::Spool(Arc::new(Farm::new(namespace, &kubeconfig, plan)?)));
        }
        let dir = tempfile::tempdir().context("make a folder for the farm")?;
        farm::prepare(dir.path(), namespace, &kubeconfig, &plan)?;
        Ok(Self::PubSub(Arc::clone(google), Arc::new(dir)))
    }

    pub fn config(&self) -> PathBuf {
        match self {
            Self::Spool(farm) => farm.config(),
            Self::PubSub(_, dir) => dir.path().join("katabatch.yaml"),
        }
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Spool(_) => Vec::new(),
            Self::PubSub(google, _) => google.environment().into(),
        }
    }

    pub async fn put(&self, messages: Vec<NewMessage>) -> Result<()> {
        match self {
            Self::Spool(farm) => farm.put(messages).await,
            Self::PubSub(google, _) => {
                google.publish(messages.into_iter().map(|m| m.attributes).collect()).await
            }
        }
    }

    /// How many messages there still are, at least.
    pub async fn left(&self) -> Result<u64> {
        match self {
            Self::Spool(farm) => {
                let counts = farm.counts().await?;
                Ok(counts.ready + counts.leased + counts.delayed + counts.quarantined)
            }
            Self::PubSub(google, _) => Ok(google.peek(TASKS).await?.len() as u64),
        }
    }
}
