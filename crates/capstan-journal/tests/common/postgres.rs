//! A database of its own for one test, on the server that `CAPSTAN_TEST_POSTGRES` names (`scripts/postgres` starts one).
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;
use std::sync::Arc;

use capstan_journal::{Durability, Options, Replica, Store, connect};
use uuid::Uuid;

pub struct Database {
    /// As an administrator.
    server: String,
    name: String,
    pub url: String,
}

impl Database {
    /// A new one. Without a server the test is skipped by name; where everything must run, that is a failure.
    pub fn create() -> Option<Self> {
        let Ok(server) = std::env::var("CAPSTAN_TEST_POSTGRES") else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CAPSTAN_TEST_POSTGRES names no server");
            println!("skipped: CAPSTAN_TEST_POSTGRES names no server; see scripts/postgres");
            return None;
        };
        let name = format!("capstan_{}", Uuid::new_v4().simple());
        psql(&server, &format!("create database {name}"));
        let (before, after) = server.split_once("://").unwrap();
        let (authority, rest) = after.split_once('/').unwrap();
        let query = rest.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
        let url = format!("{before}://{authority}/{name}{query}");
        Some(Self { server, name, url })
    }

    pub async fn store(&self, durability: Durability, replica: Replica) -> Arc<dyn Store> {
        let options = Options { durability, ..Options::default() };
        connect(&self.url, options, replica).await.unwrap()
    }

    /// Does something behind the store's back.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url, statement)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        psql(&self.server, &format!("drop database {} with (force)", self.name));
    }
}

fn psql(url: &str, statement: &str) -> String {
    let done = Command::new("psql").args([url, "-qtAX", "-v", "ON_ERROR_STOP=1", "-c", statement]).output().unwrap();
    assert!(done.status.success(), "{statement}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
