//! A server of PostgreSQL that belongs to the tests, from the programs of the Debian package `postgresql`.
//!
//! A shell keeps it. When the tests end, however they end, its standard input ends too, and it ends the server
//! and deletes its folder. The unit tests of the ledger use this file as well.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks for a server that starts, 50 ms apart.
const LOOKS: u32 = 600;

/// A user who needs a password, and the password. `lane` needs none.
pub(crate) const KEYED: (&str, &str) = ("keyed", "se/cret-word");

/// Takes the folder of the programs and a port; does what its standard input says, a line each.
const KEEPER: &str = r#"
set -u
umask 077
folder=$(mktemp -d) && cd "$folder" || exit
server=
end() {
    [ -z "$server" ] && return
    kill "$1" "$server"
    kill -CONT "$server"
    wait "$server" 2>/dev/null
    server=
}
"$1/initdb" --pgdata=data --username=lane --auth=trust --no-sync --encoding=UTF8 --locale=C >log 2>&1 ||
    { cat log >&2; exit 1; }
echo "$folder/data"
while read -r command; do
    case $command in
    start)
        "$1/postgres" -D data -h 127.0.0.1 -p "$2" -k '' -c fsync=off -c max_connections=200 \
            </dev/null >>log 2>&1 &
        server=$! ;;
    stop) end -INT ;;
    freeze) kill -STOP "$server" ;;
    esac
    echo done
done
end -QUIT
cd / && rm -rf "$folder"
"#;

/// A running server; it ends on drop.
#[derive(Debug)]
pub(crate) struct Server {
    keeper: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    /// The one that all tests of this process have in common.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(|_| {}))
    }

    /// A server of its own; `configure` may change what is in its folder before it starts.
    pub(crate) fn start(configure: impl FnOnce(&Path)) -> Self {
        let programs = programs();
        let port = free_port();
        let mut keeper = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            // It refuses to be root.
            keeper.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        }
        keeper.args(["sh", "-c", KEEPER, "keeper"]);
        keeper.arg(programs).arg(port.to_string());
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        let mut server = Self {
            commands: keeper.stdin.take(),
            answers: BufReader::new(keeper.stdout.take().unwrap()),
            keeper,
            port,
        };
        let data = PathBuf::from(server.answer());
        let users = data.join("pg_hba.conf");
        let rules = fs::read_to_string(&users).unwrap();
        let keyed = format!("host all {} 127.0.0.1/32 scram-sha-256\n", KEYED.0);
        fs::write(&users, keyed + &rules).unwrap();
        configure(&data);
        server.tell("start");
        server.wait();
        let (user, password) = KEYED;
        let create = format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'");
        query(&server.url("postgres"), &create);
        server
    }

    /// `start`, `stop`, or `freeze`, after which connections are taken and nobody answers on them.
    pub(crate) fn tell(&mut self, command: &str) {
        let commands = self.commands.as_mut().unwrap();
        commands
            .write_all(format!("{command}\n").as_bytes())
            .unwrap();
        assert_eq!(self.answer(), "done");
    }

    /// Waits until it answers.
    #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
    pub(crate) fn wait(&self) {
        let answers = || psql(&self.url("postgres"), "SELECT 1").is_ok();
        let started = (0..LOOKS).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            answers()
        });
        assert!(started, "the server of PostgreSQL does not start");
    }

    /// The URL of a database of it, for a user without password, in plain text.
    pub(crate) fn url(&self, database: &str) -> String {
        format!(
            "postgres://lane@127.0.0.1:{}/{database}?sslmode=disable",
            self.port
        )
    }

    /// The URL of a new database.
    pub(crate) fn database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("ledger_{}", MADE.fetch_add(1, Ordering::Relaxed));
        query(&self.url("postgres"), &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(
            !line.is_empty(),
            "the keeper of PostgreSQL has ended, see its words above"
        );
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.commands = None;
        // An error here hides none of the test.
        let _ended = self.keeper.wait();
    }
}

/// What `psql` prints for a statement.
pub(crate) fn query(url: &str, statement: &str) -> String {
    let printed = psql(url, statement);
    assert!(printed.is_ok(), "{statement}: {printed:?}");
    printed.unwrap()
}

fn psql(url: &str, statement: &str) -> Result<String, String> {
    let mut psql = Command::new(programs().join("psql"));
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement, url]);
    let output = psql.output().map_err(|error| error.to_string())?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(words(&output.stdout))
    } else {
        Err(words(&output.stderr))
    }
}

/// A port below those that the system gives to connections and to listeners that ask for any: a server that was
/// stopped finds it free again.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(8);
    let free = (0..LOOKS).find_map(|_| {
        let number = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let port = u16::try_from(10_000 + number).unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        Some(port)
    });
    free.unwrap()
}

/// The folder of the newest server that is installed. Debian has it in none of `PATH`.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut debian: Vec<_> = debian
            .filter_map(|version| Some(version.ok()?.path().join("bin")))
            .collect();
        debian.sort();
        let path = env::var_os("PATH").unwrap_or_default();
        let places = debian.into_iter().rev().chain(env::split_paths(&path));
        let found = places.into_iter().find(|folder| {
            let programs = ["initdb", "postgres", "psql"];
            programs.iter().all(|program| folder.join(program).exists())
        });
        assert!(
            found.is_some(),
            "these tests need a server of PostgreSQL: install the Debian package postgresql (.ci/run does)"
        );
        found.unwrap()
    })
}
