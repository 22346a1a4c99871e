use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn plan(line: &str) -> Result<Plan, PlanError> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap().arguments.plan()
}

const URL: &str = "http://127.0.0.1:1";

#[test]
fn targets_are_one_url_or_several_with_names() {
    let one = plan("http://127.0.0.1:81/api --pid 7 --pid 8").unwrap();
    let target = &one.targets[0];
    assert_eq!((one.targets.len(), one.rounds), (1, 1));
    assert_eq!(
        (target.addr.port(), target.pids.as_slice()),
        (81, &[7, 8][..])
    );
    assert_eq!(target.url.prefix, "/api");

    let two = plan("--target a=http://127.0.0.1:1,pid=7,pid=9 --target b=http://[::1]:2").unwrap();
    assert_eq!((two.targets.len(), two.rounds), (2, 9));
    assert_eq!(
        (two.targets[0].name.as_str(), two.targets[0].pids.len()),
        ("a", 2)
    );
    assert_eq!(
        (two.targets[1].name.as_str(), two.targets[1].pids.len()),
        ("b", 0)
    );
}

#[test]
fn targets_that_are_refused() {
    let many = "--target a=http://127.0.0.1:1 ".repeat(2);
    let nine: String = (0..9).map(|n| format!("--target t{n}={URL} ")).collect();
    let pids = format!("{URL} {}", "--pid 1 ".repeat(65));
    for (line, expected) in [
        ("", PlanError::NoTarget),
        ("--pid 1", PlanError::NoTarget),
        (
            "http://127.0.0.1:1 --target a=http://127.0.0.1:1",
            PlanError::TwoForms,
        ),
        ("--target a=http://127.0.0.1:1 --pid 1", PlanError::TwoForms),
        ("--target http://127.0.0.1:1", PlanError::Target),
        ("--target =http://127.0.0.1:1", PlanError::Target),
        ("--target a/b=http://127.0.0.1:1", PlanError::Target),
        ("--target a=http://127.0.0.1:1,pid=x", PlanError::Target),
        ("--target a=http://127.0.0.1:1,7", PlanError::Target),
        (&many, PlanError::Target),
        (&nine, PlanError::TooManyTargets),
        (&pids, PlanError::TooManyProcesses),
        ("127.0.0.1:1", PlanError::Url(BaseUrlError::NotHttp)),
        ("https://127.0.0.1:1", PlanError::Encrypted),
        ("http://192.0.2.1:1", PlanError::Remote),
        ("http://[2001:db8::1]:1", PlanError::Remote),
        ("http://0.0.0.0:1", PlanError::Remote),
        ("http://[::ffff:192.0.2.1]:1", PlanError::Remote),
    ] {
        assert_eq!(plan(line).map(|_| ()), Err(expected), "{line}");
    }
}

#[test]
fn targets_elsewhere_need_to_be_allowed() {
    let plan = plan("http://192.0.2.1:1 --allow-remote").unwrap();
    assert_eq!(plan.targets[0].addr, "192.0.2.1:1".parse().unwrap());
}

#[test]
fn every_run_is_bounded_in_count_and_time() {
    for (options, requests, millis) in [
        ("", 10_000_000, 2000),
        ("--requests 5", 5, 600_000),
        ("--duration 300ms", 10_000_000, 300),
        ("--requests 5 --duration 1s", 5, 1000),
    ] {
        let plan = plan(&format!("{URL} {options}")).unwrap();
        let expected = (requests, Duration::from_millis(millis));
        assert_eq!((plan.requests, plan.duration), expected, "{options}");
    }
}

#[test]
fn numbers_outside_their_bounds_are_refused_with_the_bounds() {
    for (options, message) in [
        (
            "--body-bytes 511",
            "--body-bytes: expected 512 to 20MiB, got 511",
        ),
        (
            "--body-bytes 21MiB",
            "--body-bytes: expected 512 to 20MiB, got 21MiB",
        ),
        (
            "--connections 0",
            "--connections: expected 1 to 1000, got 0",
        ),
        (
            "--connections 1001",
            "--connections: expected 1 to 1000, got 1001",
        ),
        (
            "--threads 17 --connections 20",
            "--threads: expected 1 to 16, got 17",
        ),
        ("--requests 0", "--requests: expected 1 to 10000000, got 0"),
        ("--rounds 100", "--rounds: expected 1 to 99, got 100"),
        ("--duration 0s", "--duration: expected 1ms to 10m, got 0s"),
        ("--duration 11m", "--duration: expected 1ms to 10m, got 11m"),
        ("--timeout 1h", "--timeout: expected 1ms to 10m, got 1h"),
        ("--events 0", "--events: expected 1 to 1000000, got 0"),
        (
            "--event-bytes 16777217",
            "--event-bytes: expected 1 to 16777216, got 16777217",
        ),
        ("--pause 11m", "--pause: expected 0s to 10m, got 11m"),
        (
            "--duration 2",
            "--duration: expected a time such as 500ms or 2s",
        ),
        (
            "--body-bytes 2KB",
            "--body-bytes: expected a size such as 2048, 64KiB or 1MiB",
        ),
        (
            "--threads 2 --connections 1",
            "--threads: expected at most as many as connections",
        ),
    ] {
        let error = plan(&format!("{URL} {options}")).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn texts_that_could_break_a_head_are_refused() {
    let arguments = |option: &str, text: &str| {
        let line = Line::try_parse_from(["bench", URL, option, text]).unwrap();
        line.arguments
            .plan()
            .map(|plan| String::from_utf8(plan.fields).unwrap())
    };
    assert_eq!(
        arguments("--header", "Authorization: Bearer k"),
        Ok("Authorization: Bearer k\r\n".to_owned())
    );
    assert_eq!(
        arguments("--script", "tool"),
        Ok("x-mock: tool\r\n".to_owned())
    );
    for text in ["no colon", ": v", "a b: c", "a: b\r\nc: d", "a: \u{e9}"] {
        assert_eq!(
            arguments("--header", text),
            Err(PlanError::Header),
            "{text:?}"
        );
    }
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    for text in ["", "a\r\nb", &long] {
        for option in ["--script", "--model"] {
            assert_eq!(
                arguments(option, text),
                Err(PlanError::Text(option)),
                "{text:?}"
            );
        }
    }
    let model = "m".repeat(600);
    let line = Line::try_parse_from(["bench", URL, "--body-bytes", "512", "--model", &model]);
    assert_eq!(
        line.unwrap().arguments.plan().map(|_| ()),
        Err(PlanError::BodyTooSmall)
    );
}

#[test]
fn script_of_the_mock_is_one_field() {
    let plan = plan(&format!(
        "{URL} --events 9 --event-bytes 4 --pause 20ms --script tool"
    ))
    .unwrap();
    assert_eq!(
        plan.fields,
        b"x-mock: events=9; event_bytes=4; pause=20ms; tool\r\n"
    );
}
