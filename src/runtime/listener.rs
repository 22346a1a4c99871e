//! Listening sockets: one per core on the same address, and no stranger among them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use crate::limits::BACKLOG;

/// Byte of the TCP header with the flags, and the two of them that tell a first packet from all
/// others (RFC 9293 §3.1).
const FLAGS_AT: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Classic BPF, as linux/bpf_common.h spells it: `BPF_LD | BPF_B | BPF_ABS`, `BPF_ALU | BPF_AND |
/// BPF_K`, `BPF_JMP | BPF_JEQ | BPF_K`, `BPF_RET | BPF_K`.
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Binds `count` sockets to `address`, for one core each.
///
/// The first is bound *without* port sharing, so that the kernel refuses it if any process already
/// listens there: under `SO_REUSEPORT` two gateways would silently share the traffic. Sharing is
/// switched on for it afterwards, and the others join. Port 0 picks a free port, once.
///
/// # Errors
/// `AddrInUse` when somebody listens on the address, or what the kernel says.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<StdListener>> {
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    first.listen(BACKLOG)?;
    let first = StdListener::from(first);
    let address = first.local_addr()?;
    let mut all = vec![first];
    while all.len() < count {
        let next = socket(address)?;
        next.set_reuse_port(true)?;
        next.bind(&address.into())?;
        next.listen(BACKLOG)?;
        all.push(next.into());
    }
    Ok(all)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Addresses in TIME_WAIT after a restart may be taken; addresses that are listened on may not.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A connection that was accepted and belongs to no core yet; Nagle's algorithm is off.
#[derive(Debug)]
pub struct Accepted(pub(super) std::net::TcpStream);

/// The listening socket of one core.
pub struct Listener {
    inner: monoio::net::TcpListener,
    // A second descriptor of the same socket, to accept from and to shut down without the runtime.
    handle: StdListener,
}

impl Listener {
    /// Adopts a socket made by [`bind`]; must run on the core that will accept.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn adopt(socket: StdListener) -> io::Result<Self> {
        let handle = socket.try_clone()?;
        Ok(Self {
            inner: monoio::net::TcpListener::from_std(socket)?,
            handle,
        })
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// `WouldBlock` when none does, or what the kernel says, such as a want of descriptors.
    pub fn try_accept(&self) -> io::Result<Accepted> {
        let flags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
        let socket = rustix::net::accept_with(&self.handle, flags)?;
        let stream = std::net::TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(Accepted(stream))
    }

    /// Waits until a connection waits, or the listener is shut down. May be dropped.
    ///
    /// # Errors
    /// When the wait itself fails.
    pub async fn readable(&self) -> io::Result<()> {
        self.inner.readable(false).await
    }

    /// Begins no more handshakes, so that everything that waits can be accepted before
    /// [`Self::shut_down`], which would reset it. Who connects now hears nothing, tries again after a
    /// second (RFC 6298 §2), and is refused. Where the kernel has no such filters, nothing changes.
    pub fn turn_away(&self) {
        let drop_first_packets = [
            // A = flags & (SYN | ACK)
            SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_AT),
            SockFilter::new(AND, 0, 0, SYN | ACK),
            // A == SYN: 0 bytes of the packet are taken; else all.
            SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ];
        let _as_before = SockRef::from(&self.handle).attach_filter(&drop_first_packets);
    }

    /// Stops listening: new connections are refused, and the wait for one ends.
    pub fn shut_down(&self) {
        // The only failure is a socket that does not listen any more.
        let _stopped_before = rustix::net::shutdown(&self.handle, rustix::net::Shutdown::Read);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}
