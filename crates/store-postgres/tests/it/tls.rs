//! TLS to PostgreSQL: who is trusted with which `sslmode`, and in which words others are
//! refused.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::Path;

use outlast_cluster::Cluster;
use outlast_store_postgres::{OpenError, Options, PostgresStore};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::hand::{number, run, sql};

/// The user that PostgreSQL runs as when the tests run as root.
const NOBODY: u32 = 65_534;

/// A cluster with a certificate for `localhost`, its authority, and another authority.
struct Guarded {
    cluster: Cluster,
    folder: TempDir,
}

impl Guarded {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["ca", "other"] {
            let (key, params) = (KeyPair::generate().unwrap(), authority());
            let made = params.self_signed(&key).unwrap();
            std::fs::write(folder.path().join(format!("{name}.crt")), made.pem()).unwrap();
            if name == "ca" {
                let own = KeyPair::generate().unwrap();
                let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
                let made = params.signed_by(&own, &Issuer::new(authority(), key)).unwrap();
                std::fs::write(folder.path().join("server.crt"), made.pem()).unwrap();
                secret(&folder.path().join("server.key"), &own.serialize_pem());
            }
        }
        let at = |name: &str| folder.path().join(name).display().to_string();
        let certificate = format!("ssl_cert_file={}", at("server.crt"));
        let key = format!("ssl_key_file={}", at("server.key"));
        let cluster = Cluster::start(&["ssl=on", &certificate, &key]).unwrap();
        Self { cluster, folder }
    }

    fn url(&self, host: &str, query: &str) -> String {
        let url = self.cluster.create_database().unwrap().replace("127.0.0.1", host);
        format!("{url}?{}", query.replace("DIR", &self.folder.path().display().to_string()))
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// PostgreSQL only takes a key that no other user can read.
fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    if std::fs::metadata(path).unwrap().uid() == 0 {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

#[test]
fn trusted_server_is_used_and_every_connection_is_encrypted() {
    let guarded = Guarded::start();
    for (host, query) in [
        ("localhost", "sslmode=verify-full&sslrootcert=DIR/ca.crt"),
        ("127.0.0.1", "sslmode=verify-ca&sslrootcert=DIR/ca.crt"),
        ("127.0.0.1", "sslmode=require&sslrootcert=DIR/server.crt"),
        ("127.0.0.1", "sslmode=require"),
        ("127.0.0.1", "sslmode=prefer"),
        ("127.0.0.1", "connect_timeout=3"),
    ] {
        let url = guarded.url(host, query);
        run(async {
            let server = crate::hand::Server::open(&url).await;
            outlast_store::Store::listen(&server.store, std::sync::Arc::new(|_| {}));
            server.add(1).await;
            outlast_store::Store::workers(&server.store).await.unwrap();
            let beside = sql(url.split('?').next().unwrap()).await;
            let ours = "from pg_stat_ssl join pg_stat_activity using (pid)
                        where application_name like 'outlast%' and datname = current_database()";
            let waiting = async {
                while number(&beside, &format!("select count(*) {ours}")).await < 3 {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.unwrap();
            let plain = format!("select count(*) {ours} and not ssl");
            assert_eq!(number(&beside, &plain).await, 0, "{query}");
        });
    }
    let url = guarded.url("127.0.0.1", "sslmode=disable");
    run(async { PostgresStore::open(&url, &Options::default()).await.map(|_| ()) }).unwrap();
}

fn refusal(url: &str, mode: &str) -> String {
    let error = run(PostgresStore::open(url, &Options::default())).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, OpenError::Tls { .. }), "{words}");
    assert!(words.contains(&format!("sslmode={mode}")), "{words}");
    words
}

#[test]
fn server_that_is_not_trusted_is_refused_with_the_reason() {
    let guarded = Guarded::start();
    for mode in ["require", "verify-ca", "verify-full"] {
        let query = format!("sslmode={mode}&sslrootcert=DIR/other.crt");
        let words = refusal(&guarded.url("localhost", &query), mode);
        assert!(words.contains("certificate"), "{words}");
    }
    // The system knows nothing of an authority that was made for this test.
    let query = "sslmode=verify-full&sslrootcert=system";
    let words = refusal(&guarded.url("localhost", query), "verify-full");
    assert!(words.contains("certificate"), "{words}");
    let query = "sslmode=verify-full&sslrootcert=DIR/ca.crt";
    let words = refusal(&guarded.url("127.0.0.1", query), "verify-full");
    assert!(words.contains("not valid for name"), "{words}");
}

#[test]
fn server_without_tls_is_refused_where_it_was_required_and_taken_where_not() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    let words = refusal(&format!("{url}?sslmode=require"), "require");
    assert!(words.contains("server does not support TLS"), "{words}");
    run(async {
        let url = format!("{url}?sslmode=prefer");
        PostgresStore::open(&url, &Options::default()).await.map(|_| ()).unwrap();
    });
}
