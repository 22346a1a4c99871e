//! The real `lanegate` binary as a child process, with a configuration of the test's own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::client::Client;
use crate::support::message::eventually;
use crate::support::origin::Origin;

/// The secret of every managed provider in these tests.
pub(crate) const SECRET: &str = "managed-secret-of-the-tests";

/// How the gateway waits for its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Epoll,
    IoUring,
}

impl Driver {
    fn argument(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

/// What a test wants of its gateway.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    driver: Driver,
    workers: usize,
    listen: String,
    auth: &'static str,
    half_close: &'static str,
    openai: Option<SocketAddr>,
    anthropic: Option<SocketAddr>,
    /// Of the base URLs of both; the host in place of the origin's address.
    scheme: &'static str,
    host: Option<&'static str>,
    /// More keys of both, and of the section `server`, each with a comma before it.
    provider_keys: String,
    server_keys: String,
    listed: String,
    more: String,
    /// Hard limit of open files, if not that of the tests.
    descriptors: Option<u64>,
    /// Environment variables, by name.
    variables: Vec<(String, String)>,
    /// What a shell does before it becomes the gateway.
    within: Option<String>,
    /// Lines of standard output after which nobody reads on.
    lines_read: usize,
}

impl Setup {
    /// One worker, because several would each have a pool of their own.
    pub(crate) fn new(driver: Driver) -> Self {
        Self {
            driver,
            workers: 1,
            listen: "127.0.0.1:0".to_owned(),
            auth: "managed",
            half_close: "cancel",
            openai: None,
            anthropic: None,
            scheme: "http",
            host: None,
            provider_keys: String::new(),
            server_keys: String::new(),
            listed: String::new(),
            more: String::new(),
            variables: Vec::new(),
            lines_read: usize::MAX,
            descriptors: None,
            within: None,
        }
    }

    /// The same origin as the default of both dialects.
    pub(crate) fn in_front_of(driver: Driver, origin: &Origin) -> Self {
        Self::at(driver, origin.address())
    }

    /// The provider at this address as the default of both dialects.
    pub(crate) fn at(driver: Driver, provider: SocketAddr) -> Self {
        let mut setup = Self::new(driver);
        setup.openai = Some(provider);
        setup.anthropic = Some(provider);
        setup
    }

    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address.to_string();
        self
    }

    pub(crate) fn listens_on(&self) -> &str {
        &self.listen
    }

    pub(crate) fn anthropic(mut self, origin: &Origin) -> Self {
        self.anthropic = Some(origin.address());
        self
    }

    /// `managed`, `passthrough` or `none`, for both providers.
    pub(crate) fn auth(mut self, auth: &'static str) -> Self {
        self.auth = auth;
        self
    }

    /// `cancel` or `tolerate`.
    pub(crate) fn half_close(mut self, half_close: &'static str) -> Self {
        self.half_close = half_close;
        self
    }

    /// One more provider, after those added before: `dialect` and the rest of its mapping, such as
    /// `models: [...]`. It gets no credential.
    pub(crate) fn provider(mut self, dialect: &str, at: SocketAddr, rest: &str) -> Self {
        let number = self.listed.lines().count();
        let comma = if rest.is_empty() { "" } else { ", " };
        self.listed.push_str(&format!(
            "  - {{ name: listed-{number}, dialect: {dialect}, base_url: \"http://{at}\", auth: none\
             {comma}{rest} }}\n"
        ));
        self
    }

    /// As [`Self::provider`], known by a name, on port 80.
    pub(crate) fn named_provider(mut self, name: &str, rest: &str) -> Self {
        self.listed.push_str(&format!(
            "  - {{ name: named, dialect: openai, base_url: \"http://{name}\", auth: none, {rest} }}\n"
        ));
        self
    }

    /// One more provider, after those added before, as its mapping stands in the file.
    pub(crate) fn provider_as(mut self, mapping: &str) -> Self {
        self.listed.push_str(&format!("  - {{ {mapping} }}\n"));
        self
    }

    /// Both providers inside TLS, with this authority beside the public ones.
    pub(crate) fn encrypted(mut self, ca_file: &Path) -> Self {
        self.scheme = "https";
        self.provider_keys = format!(", ca_file: \"{}\"", ca_file.display());
        self
    }

    /// More keys of both providers, such as `keepalive_idle: 1s`.
    pub(crate) fn keys(mut self, keys: &str) -> Self {
        self.provider_keys.push_str(", ");
        self.provider_keys.push_str(keys);
        self
    }

    /// The host in the URL of both providers, in place of their address.
    pub(crate) fn host(mut self, host: &'static str) -> Self {
        self.host = Some(host);
        self
    }

    /// Listens inside TLS.
    pub(crate) fn listen_encrypted(mut self, certificate: &Path, key: &Path) -> Self {
        self.server_keys = format!(
            ", tls: {{ certificate: \"{}\", key: \"{}\" }}",
            certificate.display(),
            key.display()
        );
        self
    }

    /// Starts with this hard limit of open files.
    pub(crate) fn descriptors(mut self, limit: u64) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Starts in a shell that did this first.
    pub(crate) fn within(mut self, commands: &str) -> Self {
        self.within = Some(commands.to_owned());
        self
    }

    /// Nobody reads the access log: the pipe of standard output stays open and fills.
    pub(crate) fn unread_log(mut self) -> Self {
        self.lines_read = 1;
        self
    }

    /// Top-level configuration lines of the test's own.
    pub(crate) fn with(mut self, lines: &str) -> Self {
        self.more.push_str(lines);
        self.more.push('\n');
        self
    }

    /// With this environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn yaml(&self) -> String {
        let mut yaml = format!(
            "server: {{ listen: [\"{}\"], half_close: {}{} }}\n",
            self.listen, self.half_close, self.server_keys
        );
        yaml.push_str(&self.more);
        yaml.push_str("providers:\n");
        for (name, origin) in [("openai", self.openai), ("anthropic", self.anthropic)] {
            let Some(origin) = origin else { continue };
            let secret = match self.auth {
                "managed" => ", secret_env: LANEGATE_TEST_KEY",
                _ => "",
            };
            let (scheme, more) = (self.scheme, &self.provider_keys);
            let address = match self.host {
                Some(host) => format!("{host}:{}", origin.port()),
                None => origin.to_string(),
            };
            yaml.push_str(&format!(
                "  - {{ name: {name}-origin, dialect: {name}, base_url: \"{scheme}://{address}\", \
                 auth: {}{secret}, default: true{more} }}\n",
                self.auth
            ));
        }
        yaml.push_str(&self.listed);
        yaml
    }

    fn spawn(&self) -> Gateway {
        let mut config = NamedTempFile::with_suffix(".yaml").unwrap();
        config.write_all(self.yaml().as_bytes()).unwrap();
        let binary = env!("CARGO_BIN_EXE_lanegate");
        let limited = self.descriptors.map(|limit| format!("ulimit -n {limit}"));
        let mut command = match limited.as_ref().or(self.within.as_ref()) {
            None => Command::new(binary),
            Some(first) => {
                let mut shell = Command::new("sh");
                let commands = format!("{first} && exec \"$0\" \"$@\"");
                shell.args(["-c", &commands, binary]);
                shell
            }
        };
        let mut child = command
            .args(["serve", "--driver", self.driver.argument()])
            .args(["--workers", &self.workers.to_string()])
            .arg("--config")
            .arg(config.path())
            .env("LANEGATE_TEST_KEY", SECRET)
            .env_remove("LANEGATE_SWITCHES_ENABLED")
            .env_remove("IMPOSTER_WHO_MESSAGE_ENABLED")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let mut readers = vec![gather(child.stderr.take().unwrap(), &output, usize::MAX)];
        let reader = gather(child.stdout.take().unwrap(), &output, self.lines_read);
        // One that stops reading keeps its pipe until the tests end: nobody waits for it.
        if self.lines_read == usize::MAX {
            readers.push(reader);
        }
        Gateway {
            child,
            output,
            readers,
            address: None,
            yaml: self.yaml(),
            config,
        }
    }

    /// Starts the gateway and waits until it listens.
    pub(crate) fn start(&self) -> Gateway {
        let mut gateway = self.spawn();
        let settled = eventually(|| {
            gateway.address = gateway.announced();
            gateway.address.is_some() || gateway.child.try_wait().unwrap().is_some()
        });
        assert!(
            settled && gateway.address.is_some(),
            "the gateway does not listen"
        );
        gateway
    }

    /// Starts a gateway that is expected to end by itself; its exit status and output.
    pub(crate) fn run_to_end(&self) -> (ExitStatus, String) {
        let mut gateway = self.spawn();
        let status = gateway.exit_status();
        (status, gateway.output())
    }
}

/// A running gateway; it is killed on drop, and its output shown if the test fails.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    output: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    address: Option<SocketAddr>,
    yaml: String,
    config: NamedTempFile,
}

impl Gateway {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.unwrap()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Standard output and standard error so far, in order of arrival.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// The access line of the first exchange for which `wanted` holds; fails the test if none comes.
    pub(crate) fn access_line(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        let came = eventually(|| {
            found = self.access_lines().into_iter().find(&wanted);
            found.is_some()
        });
        assert!(came, "no access line with {what}");
        found.unwrap()
    }

    /// The access line whose `end_reason` is this.
    pub(crate) fn ended(&self, end_reason: &str) -> Value {
        self.access_line(end_reason, |line| line["end_reason"] == end_reason)
    }

    /// All access lines so far.
    pub(crate) fn access_lines(&self) -> Vec<Value> {
        let output = self.output();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Descriptors that the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(folder).unwrap().count()
    }

    fn announced(&self) -> Option<SocketAddr> {
        let output = self.output();
        let (_, after) = output.split_once("listening on ")?;
        let end = after.find(char::is_whitespace)?;
        after[..end].trim_end_matches(',').parse().ok()
    }

    /// Replaces the configuration file.
    pub(crate) fn configure(&self, setup: &Setup) {
        self.configure_with(&setup.yaml());
    }

    /// Replaces the configuration file by this text.
    pub(crate) fn configure_with(&self, yaml: &str) {
        fs::write(self.config.path(), yaml).unwrap();
    }

    /// Has the configuration read again; what the gateway says about it.
    pub(crate) fn reload(&self) -> String {
        let before = self.output().len();
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        let mut said = String::new();
        let answered = eventually(|| {
            let output = self.output();
            let lines = output[before..].split_inclusive('\n');
            // Lines of the access log come on their own.
            said = lines.filter(|line| !line.starts_with('{')).collect();
            // A failure follows the words that introduce it.
            said.ends_with('\n') && !said.ends_with(":\n")
        });
        assert!(answered, "nothing about a reload: {said:?}");
        said
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal and waits for the exit.
    pub(crate) fn signal(mut self, signal: Signal) -> ExitStatus {
        self.tell(signal);
        self.exit_status()
    }

    /// Sends a signal.
    pub(crate) fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has said this.
    pub(crate) fn said(&self, words: &str) {
        let said = eventually(|| self.output().contains(words));
        assert!(said, "it never said: {words}");
    }

    /// Waits for the exit, and for the last words.
    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        let ended = eventually(|| self.child.try_wait().unwrap().is_some());
        assert!(ended, "the gateway does not end");
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        self.child.wait().unwrap()
    }

    /// Lets the process open no descriptor with this number or a higher one.
    pub(crate) fn limit_descriptors(&self, limit: u64) {
        let limits = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limits).unwrap();
    }

    /// The lowest number that no descriptor of the process has.
    pub(crate) fn free_descriptor(&self) -> u64 {
        let path = format!("/proc/{}/fd", self.child.id());
        let entries = fs::read_dir(path).unwrap();
        let open: Vec<u64> = entries
            .map(|entry| {
                let name = entry.unwrap().file_name();
                name.to_str().unwrap().parse().unwrap()
            })
            .collect();
        (0..).find(|number| !open.contains(number)).unwrap()
    }

    /// Time on a processor so far, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(path).unwrap();
        let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split(' ').collect();
        // utime and stime, fields 14 and 15 of proc(5), counted from behind the name.
        fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
    }

    /// A line of /proc/PID/status as a number: kibibytes for memory lines.
    pub(crate) fn proc_status(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find(|l| l.split(':').next() == Some(key));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }
}

impl Drop for Gateway {
    #[expect(
        clippy::print_stderr,
        reason = "libtest shows it with the failing test only"
    )]
    fn drop(&mut self) {
        // Refused when it has ended already.
        let _already_ended = self.child.kill();
        let status = self.child.wait();
        if std::thread::panicking() {
            let (yaml, output) = (&self.yaml, self.output());
            eprintln!("--- gateway: {status:?}\n{yaml}--- its output:\n{output}---");
        } else {
            check_access_lines(&self.output());
        }
    }
}

/// Keys of an access line; docs/operations.md says what they are.
const ACCESS_KEYS: [&str; 35] = [
    "time",
    "request_id",
    "client",
    "family",
    "dialect",
    "route",
    "provider",
    "auth",
    "session",
    "switch",
    "lane",
    "decline",
    "status",
    "error",
    "request_bytes",
    "response_bytes",
    "attempts",
    "gathered_ms",
    "connected_ms",
    "first_byte_ms",
    "duration_ms",
    "end_reason",
    "usage",
    "stop_reason",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "injection",
    "session_kind",
    "session_source",
    "session_evidence",
    "session_revision",
    "agent_family",
    "agent_evidence",
];

/// Over the whole suite, whatever clients sent: a line has these keys and no other, so no conversation and
/// no agent, and its values are numbers, names of the configuration and single words, so no text.
fn check_access_lines(output: &str) {
    for line in output.lines().filter(|line| line.starts_with('{')) {
        // The last one may be cut by the end of the process.
        let Ok(Value::Object(line)) = serde_json::from_str(line) else {
            continue;
        };
        for (key, value) in line {
            assert!(
                ACCESS_KEYS.contains(&key.as_str()),
                "{key} in an access line"
            );
            let named = matches!(key.as_str(), "client" | "provider");
            let text = value.as_str().filter(|_| !named).unwrap_or_default();
            let is_word = text.len() <= 40 && !text.contains(char::is_whitespace);
            assert!(
                is_word && !value.is_object() && !value.is_array(),
                "{key}: {value}"
            );
        }
    }
}

/// Reads lines until `most` have come, and then keeps the stream open.
fn gather(
    stream: impl Read + Send + 'static,
    output: &Arc<Mutex<String>>,
    most: usize,
) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        let mut read = 0;
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            output
                .lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&line));
            line.clear();
            read += 1;
            if read == most {
                loop {
                    // With the stream, until the tests end.
                    std::thread::park();
                }
            }
        }
    })
}
