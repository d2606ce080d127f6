//! A folder's runs move into a database: through the binary, and seen by clients.

use std::process::{Command, Output};

use crate::cluster::postgres_server::Database;
use crate::serve::client::{ask, http, stream_of};
use crate::serve::process::{Server, hasty_folder};

fn copy(folder: &std::path::Path, from: &str, to: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(["journal", "copy", from, to]).current_dir(folder).env_clear().output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_folders_runs_are_replayed_from_a_database_byte_by_byte() {
    let database = Database::create();
    let folder = hasty_folder();
    let server = Server::start(folder.path());
    let (mut runs, http) = (Vec::new(), http());
    for count in [1, 20, 300] {
        let response = server.post(&http, &ask(&format!("/tokens {count}"))).await;
        runs.push((stream_of(&response), response.bytes().await.unwrap()));
    }
    let refused = copy(folder.path(), "disk:journal", &database.url);
    assert!(!refused.status.success(), "a gateway has it open");
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));

    let copied = copy(folder.path(), "disk:journal", &database.url);
    let said = String::from_utf8(copied.stdout).unwrap();
    assert!(copied.status.success() && said.starts_with("3 runs (0 of them were there)"), "{said}");
    let again = copy(folder.path(), "disk:journal", &database.url);
    assert!(String::from_utf8(again.stdout).unwrap().starts_with("3 runs (3 of them were there)"));
    let server = Server::start_as(folder.path(), &["--journal", &database.url], &[]);
    for (stream, bytes) in runs {
        let replayed = server.get(&format!("/v1/streams/{stream}")).await.bytes().await.unwrap();
        assert!(replayed == bytes, "{stream}");
    }
    assert_eq!(server.streams().await.len(), 3);
}
