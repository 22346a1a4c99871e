//! The ledger of several gateways in one database of PostgreSQL, from outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lanegate::limits::{CHANGES_QUEUED, LEDGER_BATCH_ROWS};

use crate::ledger::{ask, operator, provider, report, scrape};
use crate::support::certificates::Authority;
use crate::support::client::{BODY, CHAT, Client, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::Origin;
use crate::support::postgres::{KEYED, Server, query};

on_both_drivers!(
    an_outcome_finds_the_answer_of_another_gateway,
    an_answer_that_is_not_stored_yet_is_known_to_its_gateway_alone,
    a_database_that_stops_under_load_fails_no_request,
    a_database_that_is_away_for_long_costs_rows_and_no_request,
    a_gateway_starts_without_its_database,
    a_connection_is_encrypted_and_its_server_verified,
    a_password_is_shown_nowhere,
);

/// In front of a provider that is on this machine, but not by its address.
fn gateway(driver: Driver, origin: &Origin, url: &str) -> Gateway {
    gateway_that_stores(driver, origin, url, "100ms")
}

/// The same, which stores its rows that often. The URL is in a variable.
fn gateway_that_stores(driver: Driver, origin: &Origin, url: &str, every: &str) -> Gateway {
    let lines = format!(
        "store: {{ url_env: LEDGER_URL, flush_interval: {every} }}\nadmin: {{ listen: \"127.0.0.1:0\" }}"
    );
    let setup = Setup::in_front_of(driver, origin).host("0.0.0.0");
    setup.with(&lines).variable("LEDGER_URL", url).start()
}

const PASS: &str = "{\"outcome\":\"pass\",\"conversation_id\":\"a\"}";

/// How many of the rows there are; none before a gateway has made the table.
fn count(url: &str, table: &str, of: &str) -> usize {
    if query(url, &format!("SELECT to_regclass('{table}') IS NULL")) == "t" {
        return 0;
    }
    let counted = query(url, &format!("SELECT COUNT(*) FROM {table} {of}"));
    counted.parse().unwrap()
}

fn decisions(url: &str) -> usize {
    count(url, "route_decisions", "")
}

/// Whether the answer of an exchange is in the database.
fn has_answer(url: &str, id: &str) -> bool {
    let of = format!("WHERE request_id = '{id}'");
    count(url, "energy_observations", &of) == 1
}

fn an_outcome_finds_the_answer_of_another_gateway(driver: Driver) {
    let url = Server::shared().database();
    let origin = provider();
    let [one, other] = [(); 2].map(|()| gateway(driver, &origin, &url));
    let first = ask(&mut one.connect(), &["X-Router-Conversation: a"]);
    // Nobody asks for it: it is stored because its time has come.
    assert!(eventually(|| has_answer(&url, &first)));
    assert_eq!(report(&mut other.connect(), PASS).0, 200);
    let outcome = |id: &str| {
        let row =
            format!("SELECT client_outcome FROM energy_observations WHERE request_id = '{id}'");
        query(&url, &row)
    };
    assert_eq!(outcome(&first), "pass");
    // The newest answer counts, whoever gave it, also where an older one is known without asking.
    let second = ask(&mut other.connect(), &["X-Router-Conversation: a"]);
    assert!(eventually(|| has_answer(&url, &second)));
    let fail = "{\"outcome\":\"fail\",\"conversation_id\":\"a\"}";
    assert_eq!(report(&mut one.connect(), fail).0, 200);
    assert_eq!(
        (outcome(&first).as_str(), outcome(&second).as_str()),
        ("pass", "fail")
    );
    let by_id = format!("{{\"outcome\":\"error\",\"request_id\":\"{first}\"}}");
    assert_eq!(report(&mut other.connect(), &by_id).0, 409);
}

fn an_answer_that_is_not_stored_yet_is_known_to_its_gateway_alone(driver: Driver) {
    let url = Server::shared().database();
    let origin = provider();
    // Longer than any wait of a test, and the ordinary interval.
    let [one, other] = ["1m", "100ms"].map(|it| gateway_that_stores(driver, &origin, &url, it));
    let id = ask(&mut one.connect(), &["X-Router-Conversation: a"]);
    let later = ask(&mut other.connect(), &["X-Router-Conversation: b"]);
    assert!(eventually(|| has_answer(&url, &later)));
    let by_id = format!("{{\"outcome\":\"pass\",\"request_id\":\"{id}\"}}");
    for body in [PASS, &by_id] {
        let (status, told) = report(&mut other.connect(), body);
        assert_eq!(status, 404, "{told}");
    }
    assert!(!has_answer(&url, &id));
    // What is asked of its own gateway has the answer stored before it is answered.
    let (status, sum) = operator(&one, "/admin/conversations?conversation=a");
    assert_eq!(status, 200, "{sum}");
    assert!(has_answer(&url, &id));
    for body in [PASS, &by_id] {
        let (status, told) = report(&mut other.connect(), body);
        assert_eq!(status, 200, "{told}");
    }
}

/// Requests one after the other until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Bounds what it sends, far below what waits for a store at most.
    const REQUESTS_MAX: usize = 20_000;

    fn on(mut client: Client) -> Self {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let sent_each = request("POST", CHAT, &["X-Router-Conversation: a"], BODY.as_bytes());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                assert_eq!(client.exchange("POST", &sent_each).status, 200);
                let count = counted.fetch_add(1, Ordering::Relaxed);
                assert!(count < Self::REQUESTS_MAX);
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    /// Waits for fifty more answers.
    fn goes_on(&self) {
        let before = self.sent.load(Ordering::Relaxed);
        let goes_on = || self.sent.load(Ordering::Relaxed) >= before + 50;
        assert!(eventually(goes_on), "no answer any more");
    }

    /// How many requests were answered.
    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn a_database_that_stops_under_load_fails_no_request(driver: Driver) {
    let mut server = Server::start(|_| {});
    let url = server.database();
    let origin = provider();
    let gateway = gateway(driver, &origin, &url);
    let load = Load::on(gateway.connect());
    assert!(eventually(|| decisions(&url) > 0));
    server.tell("stop");
    gateway.said("the ledger is not being stored");
    load.goes_on();
    assert_eq!(report(&mut gateway.connect(), PASS).0, 503);
    assert_eq!(scrape(&gateway).count("lanegate_ledger_available"), 0);
    server.tell("start");
    load.goes_on();
    gateway.said("the ledger is being stored again");
    load.goes_on();
    let sent = load.end();
    // What came while it was away was kept.
    assert!(eventually(|| decisions(&url) == sent));
    assert_eq!(report(&mut gateway.connect(), PASS).0, 200);
    let now = scrape(&gateway);
    assert_eq!(now.count("lanegate_ledger_available"), 1);
    assert_eq!(now.count("lanegate_ledger_rows_lost_total"), 0);
}

/// Rows of one answered request: a decision, and an answer.
const ROWS: usize = 2;

/// Requests whose rows fill what waits for a store, a batch in hand and the queue, and a few more.
const REQUESTS_TO_LOSE: usize = (CHANGES_QUEUED + LEDGER_BATCH_ROWS) / ROWS + 512;

/// Sends so many requests on two connections at once, or a few more; how many.
fn flood(gateway: &Gateway, origin: &Origin, requests: usize) -> usize {
    const PIPELINED: usize = 64;
    let piece = request("POST", CHAT, &["X-Router-Conversation: a"], BODY.as_bytes());
    let pieces = piece.repeat(PIPELINED);
    let rounds = requests.div_ceil(2 * PIPELINED);
    let one = || {
        let mut client = gateway.connect();
        for _ in 0..rounds {
            client.send(&pieces).unwrap();
            for _ in 0..PIPELINED {
                assert_eq!(client.response("POST").unwrap().status, 200);
            }
            origin.forget();
        }
    };
    thread::scope(|scope| {
        scope.spawn(one);
        one();
    });
    rounds * 2 * PIPELINED
}

fn a_database_that_is_away_for_long_costs_rows_and_no_request(driver: Driver) {
    let mut server = Server::start(|_| {});
    let url = server.database();
    let origin = provider();
    let gateway = gateway(driver, &origin, &url);
    let mut sent = flood(&gateway, &origin, 1);
    assert!(eventually(|| decisions(&url) == sent));
    server.tell("stop");
    sent += flood(&gateway, &origin, REQUESTS_TO_LOSE);
    let counted = |series: &str| usize::try_from(scrape(&gateway).count(series)).unwrap();
    let lost = || counted("lanegate_ledger_rows_lost_total");
    assert!(eventually(|| lost() > 0));
    assert_eq!(report(&mut gateway.connect(), PASS).0, 503);
    server.tell("start");
    // Between two tries there may be 30 s by now.
    let is_stored = || counted("lanegate_ledger_available") == 1;
    assert!((0..5).any(|_| eventually(is_stored)));
    sent += flood(&gateway, &origin, 1);
    // What fitted is stored, each row once, and what did not is counted.
    let written = || counted("lanegate_ledger_rows_written_total");
    let lost_before = || counted("lanegate_log_records_lost_total");
    let all = || written() + lost() + lost_before() == ROWS * sent;
    let is_whole = (0..3).any(|_| eventually(all));
    assert!(is_whole, "{sent} sent: {:?}", scrape(&gateway));
    let answers = count(&url, "energy_observations", "");
    assert_eq!(decisions(&url) + answers, written());
    assert_eq!(report(&mut gateway.connect(), PASS).0, 200);
}

fn a_gateway_starts_without_its_database(driver: Driver) {
    let mut server = Server::start(|_| {});
    let url = server.database();
    server.tell("stop");
    let origin = provider();
    let gateway = gateway(driver, &origin, &url);
    let id = ask(&mut gateway.connect(), &[]);
    gateway.said("the database cannot be opened or reached");
    server.tell("start");
    gateway.said("the ledger is being stored again");
    let body = format!("{{\"outcome\":\"pass\",\"request_id\":\"{id}\"}}");
    assert_eq!(report(&mut gateway.connect(), &body).0, 200);
}

/// A server that takes encrypted connections too.
fn encrypted(authority: &Authority) -> Server {
    let (certificate, key) = authority.files();
    Server::start(|data: &Path| {
        let owner = fs::metadata(data).unwrap();
        for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
            let file = data.join(name);
            fs::copy(from, &file).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let settings = data.join("postgresql.conf");
        let before = fs::read_to_string(&settings).unwrap();
        fs::write(settings, before + "\nssl = on\n").unwrap();
    })
}

fn a_connection_is_encrypted_and_its_server_verified(driver: Driver) {
    let authority = Authority::new();
    let server = encrypted(&authority);
    let plain = server.database();
    let origin = provider();
    let store = |mode: &str, ca_file: Option<&Path>| {
        let ca = ca_file.map_or(String::new(), |file| {
            format!(", ca_file: \"{}\"", file.display())
        });
        let url = plain.replace("disable", mode);
        let lines = format!("store: {{ url: \"{url}\", flush_interval: 100ms{ca} }}");
        Setup::in_front_of(driver, &origin).with(&lines).start()
    };
    let gateway = store("verify-full", Some(&authority.ca_file()));
    ask(&mut gateway.connect(), &[]);
    assert!(eventually(|| decisions(&plain) == 1));
    let versions = "SELECT DISTINCT ssl, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name = 'lanegate'";
    assert_eq!(query(&plain, versions), "t|TLSv1.3");
    // Neither word has an unknown server believed.
    for mode in ["require", "verify-full"] {
        let gateway = store(mode, None);
        gateway.said("the certificate of the database is not to be believed");
        ask(&mut gateway.connect(), &[]);
    }
    assert_eq!(decisions(&plain), 1);
}

fn a_password_is_shown_nowhere(driver: Driver) {
    let url = Server::shared().database();
    let (user, password) = KEYED;
    let written = password.replace('/', "%2F");
    let url = url.replace("lane@", &format!("{user}:{written}@"));
    let origin = provider();
    let gateway = gateway(driver, &origin, &url);
    let id = ask(&mut gateway.connect(), &[]);
    let body = format!("{{\"outcome\":\"pass\",\"request_id\":\"{id}\"}}");
    assert_eq!(report(&mut gateway.connect(), &body).0, 200);
    let (status, effective) = operator(&gateway, "/admin/config");
    assert_eq!(status, 200);
    assert!(
        effective.contains(&format!("# url: \"postgres://{user}@127.0.0.1")),
        "{effective}"
    );
    let in_file = Setup::in_front_of(driver, &origin).with(&format!("store: {{ url: \"{url}\" }}"));
    let (status, refused) = in_file.run_to_end();
    assert!(
        !status.success() && refused.contains("url_env"),
        "{refused}"
    );
    for text in [effective, refused, gateway.output()] {
        assert!(!text.contains("cret-word"), "{text}");
    }
}
