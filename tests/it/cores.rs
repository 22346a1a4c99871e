//! Connections and cores: which core serves, and how many connections there are in all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::client::{Client, local};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{Wire, eventually};
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    skewed_connections_are_served_by_all_cores,
    the_limit_of_connections_holds_over_all_cores,
);

/// Source ports to try: below those that Linux gives to clients which ask for none (32768 to 60999).
const PORTS: Range<u16> = 20_000..32_000;

/// The core that serves a client: its request ids begin with a number of its own.
fn core_of(client: &mut Client) -> String {
    let answer = client.exchange("HEAD", &local());
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    id[..20].to_owned()
}

/// A client with this source port; it ends with a reset, so that the port is free at once.
fn connect_from(gateway: &Gateway, port: u16) -> Option<Client> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], port)).into())
        .ok()?;
    socket.connect(&gateway.address().into()).ok()?;
    let wire = Wire::new(TcpStream::from(socket));
    Some(Client { wire })
}

/// The kernel chooses the listener by a hash of both addresses, so that a source port that led to a
/// core once leads there again: ports are tried one at a time, while no core has anything to hand
/// over, and those of one core then used together.
fn skewed_connections_are_served_by_all_cores(driver: Driver) {
    const SKEWED: usize = 24;
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).workers(2).start();
    let mut ports: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for port in PORTS {
        if let Some(mut client) = connect_from(&gateway, port) {
            let of_core = ports.entry(core_of(&mut client)).or_default();
            of_core.push(port);
            if of_core.len() == 2 * SKEWED {
                break;
            }
        }
    }
    let skewed = ports.into_values().max_by_key(Vec::len).unwrap();
    let mut clients = Vec::new();
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    for port in skewed {
        // A port may be in use meanwhile.
        if let Some(mut client) = connect_from(&gateway, port) {
            *served.entry(core_of(&mut client)).or_default() += 1;
            clients.push(client);
        }
    }
    assert!(clients.len() >= SKEWED, "{} ports were free", clients.len());
    let counts: BTreeSet<_> = served.values().copied().collect();
    assert_eq!(served.len(), 2, "{served:?}");
    let (fewest, most) = (counts.first().unwrap(), counts.last().unwrap());
    // Four more, or a quarter; and one for the client that is not gone yet from before.
    assert!(*most <= fewest + 4.max(fewest / 4) + 1, "{served:?}");
    // Each stays where it is.
    let again = clients.iter_mut().map(core_of).collect::<BTreeSet<_>>();
    assert_eq!(again.len(), 2);
}

fn the_limit_of_connections_holds_over_all_cores(driver: Driver) {
    const LIMIT: usize = 5;
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .workers(2)
        .with("limits: { connections: 5 }")
        .start();
    let mut clients: Vec<_> = (0..2 * LIMIT).map(|_| gateway.connect()).collect();
    for client in &clients {
        client.send(&local()).unwrap();
        client.wire.stream().set_nonblocking(true).unwrap();
    }
    let answered = |clients: &[Client]| {
        let answered = clients
            .iter()
            .filter(|it| it.wire.stream().peek(&mut [0]).is_ok());
        answered.count()
    };
    // Whichever listener they wait at, there is a seat for as many as the limit and no more.
    assert!(eventually(|| answered(&clients) >= LIMIT));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(answered(&clients), LIMIT);
    while !clients.is_empty() {
        assert!(eventually(|| answered(&clients) > 0));
        clients.retain(|it| it.wire.stream().peek(&mut [0]).is_err());
    }
}
