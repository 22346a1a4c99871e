//! Arguments in, exit code out: 0 served or checked, 64 usage or configuration, 1 runtime.

#![expect(clippy::print_stderr, reason = "this is the command line")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lanegate::bench;
use lanegate::config::{self, BaseUrl, Config, ConfigError, Driver, Workers};
use lanegate::dialect::Dialect;
use lanegate::mock;
use lanegate::probe::{self, Outcome, Question};
use lanegate::server::Reread;
use lanegate::switch::Switch;

/// Where a gateway without a configuration listens.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

const USAGE: u8 = 64;
const RUNTIME: u8 = 1;

#[derive(Parser)]
#[command(
    name = "lanegate",
    version,
    about = "A transparent streaming gateway for LLM agents"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (also what happens without a command)
    Serve(Serve),
    /// Check a configuration and print it with every default filled in, without secrets
    Check {
        /// The configuration file
        #[arg(long)]
        config: PathBuf,
    },
    /// Read a request body from standard input and print its facts as one line of JSON
    Peek {
        /// The API that the body is for
        #[arg(long, value_parser = ["chat", "messages", "responses"])]
        dialect: String,
    },
    /// Run the scripted provider that stands in for real ones
    Mock(Mock),
    /// Ask a running gateway where a request would go, or for a new session, as a person would by typing
    /// --who? or --newsession. Exit code 0: it answered; 1: it is not answered there, and may have
    /// reached a provider; 2: no answer
    Probe(Probe),
    /// Ask targets the same request again and again, and measure them
    Bench(Box<bench::Arguments>),
}

#[derive(Args)]
struct Serve {
    /// The configuration file; without one, serve in front of the built-in mock provider
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address to listen on, instead of the configured ones
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Number of workers, instead of the configured one
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Kernel interface, instead of the configured one
    #[arg(long)]
    driver: Option<DriverName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum DriverName {
    Auto,
    #[value(name = "io_uring")]
    IoUring,
    Epoll,
}

#[derive(Args)]
struct Mock {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Folder of response files to serve by name
    #[arg(long)]
    responses: Option<PathBuf>,
    /// Script for requests that bring none, such as `pause=20ms; events=50`
    #[arg(long, default_value = "")]
    script: String,
}

#[derive(Args)]
struct Probe {
    /// What is asked
    #[arg(value_parser = ["who", "newsession"])]
    what: String,
    /// The API that the client speaks
    #[arg(long, value_parser = ["chat", "messages", "responses"])]
    dialect: String,
    /// The model that the client asks for
    #[arg(long)]
    model: String,
    /// The session of the client
    #[arg(long)]
    session: Option<String>,
    /// Where the gateway is
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Environment variable with the client's key
    #[arg(long)]
    key_env: Option<String>,
}

/// Exit codes of `probe` beside success.
const FORWARDED: u8 = 1;
const NO_ANSWER: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors; a broken pipe is nobody's fault.
            let _nobody_reads = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(options) => serve(options),
        Command::Check { config } => check(&config),
        Command::Mock(options) => mock(options),
        Command::Peek { dialect } => peek(&dialect),
        Command::Probe(options) => ask(options),
        Command::Bench(arguments) => measure(&arguments),
    }
}

fn serve(options: Serve) -> ExitCode {
    // Held until the process ends: the provider behind the gateway without a configuration.
    let mut provider = None;
    let config = match &options.config {
        Some(path) => config::load(path).map_err(|error| (USAGE, error.to_string())),
        None => mock::Mock::start(mock::Options::default())
            .map(|started| {
                let listen = options.listen.unwrap_or(DEFAULT_LISTEN);
                let config = config::builtin(listen, started.addr());
                provider = Some(started);
                config
            })
            .map_err(|error| (RUNTIME, format!("the built-in mock provider: {error}"))),
    };
    let mut config = match config {
        Ok(config) => config,
        Err((code, message)) => return failed(code, &message),
    };
    if let Err(error) = override_with(&options, &mut config) {
        return failed(USAGE, &error.to_string());
    }
    warn(&config);
    if provider.is_some() {
        say("no configuration given: serving in front of the built-in mock provider");
    }
    match lanegate::server::run(config, reread(options), |running| say(&running.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(RUNTIME, &error.to_string()),
    }
}

/// Reads the configuration again as it was read at the start: what the command line says goes first.
fn reread(options: Serve) -> Option<Reread> {
    let path = options.config.clone()?;
    Some(Box::new(move || {
        let mut config = config::load(&path)?;
        warn(&config);
        override_with(&options, &mut config)?;
        Ok(config)
    }))
}

fn override_with(options: &Serve, config: &mut Config) -> Result<(), ConfigError> {
    if let Some(listen) = options.listen {
        config.listen_on(listen)?;
    }
    if let Some(workers) = options.workers {
        config.server.workers = Workers::Count(workers.into());
    }
    match options.driver {
        Some(DriverName::Auto) => config.server.driver = Driver::Auto,
        Some(DriverName::IoUring) => config.server.driver = Driver::IoUring,
        Some(DriverName::Epoll) => config.server.driver = Driver::Epoll,
        None => {}
    }
    Ok(())
}

fn check(path: &std::path::Path) -> ExitCode {
    match config::load(path) {
        Ok(config) => {
            warn(&config);
            say(config.effective_yaml().trim_end());
            if let Some(shortage) = lanegate::server::shortage(&config) {
                say(&format!("# {shortage}"));
            }
            // Not on standard output, which is a configuration.
            eprintln!("lanegate: {} is valid", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => failed(USAGE, &error.to_string()),
    }
}

fn peek(dialect: &str) -> ExitCode {
    let Some(dialect) = Dialect::from_name(dialect) else {
        return failed(USAGE, "--dialect: expected chat, messages or responses");
    };
    let mut body = Vec::new();
    match std::io::stdin().lock().read_to_end(&mut body) {
        Ok(_) => {
            say(&lanegate::peek::report(dialect, &body));
            ExitCode::SUCCESS
        }
        Err(error) => failed(RUNTIME, &format!("standard input: {error}")),
    }
}

fn ask(options: Probe) -> ExitCode {
    let named = |switch: &Switch| switch.as_str() == options.what;
    let switch = Switch::ALL.into_iter().find(named);
    let (Some(switch), Some(dialect)) = (switch, Dialect::from_name(&options.dialect)) else {
        return failed(
            NO_ANSWER,
            "expected who or newsession, and --dialect chat, messages or responses",
        );
    };
    let url = match BaseUrl::parse(&options.url) {
        Ok(url) => url,
        Err(error) => return failed(NO_ANSWER, &format!("--url: {error}")),
    };
    let Ok(key) = options.key_env.map(std::env::var).transpose() else {
        let what = "--key-env: the variable is unset, or no text";
        return failed(NO_ANSWER, what);
    };
    let question = Question {
        switch,
        dialect,
        model: options.model,
        session: options.session,
        key,
        url,
    };
    match probe::ask(&question) {
        Ok(Outcome::Answered(line)) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Ok(Outcome::Forwarded(status)) => failed(
            FORWARDED,
            &format!("not answered by a gateway; what answered said {status}"),
        ),
        Err(error) => failed(NO_ANSWER, &error.to_string()),
    }
}

fn mock(options: Mock) -> ExitCode {
    let script = match options.script.parse::<mock::Script>() {
        Ok(script) => script,
        Err(error) => return failed(USAGE, &format!("--script: {error}")),
    };
    let Mock {
        listen, responses, ..
    } = options;
    let options = mock::Options {
        listen,
        responses,
        script,
        ..mock::Options::default()
    };
    match mock::Mock::start(options) {
        Ok(provider) => {
            say(&format!("mock provider listening on {}", provider.addr()));
            loop {
                // Its threads serve; a signal ends the process.
                std::thread::park();
            }
        }
        Err(error) => failed(RUNTIME, &error.to_string()),
    }
}

fn measure(arguments: &bench::Arguments) -> ExitCode {
    match bench::run(arguments, &mut std::io::stdout().lock()) {
        Ok(bench::Outcome::Right) => ExitCode::SUCCESS,
        Ok(bench::Outcome::Wrong) => failed(RUNTIME, "not every request was answered rightly"),
        Err(error @ bench::BenchError::Plan(_)) => failed(USAGE, &error.to_string()),
        Err(error) => failed(RUNTIME, &error.to_string()),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Who closed standard output does not want to hear more.
    let _nobody_reads = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn warn(config: &Config) {
    for warning in &config.warnings {
        eprintln!("lanegate: warning: {warning}");
    }
}

fn failed(code: u8, message: &str) -> ExitCode {
    eprintln!("lanegate: {message}");
    ExitCode::from(code)
}
