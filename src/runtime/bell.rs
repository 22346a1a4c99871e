//! A wake-up of one core by another.
//!
//! The runtime's own wakers belong to their core. A socket pair does what both drivers can wait for:
//! the waiting end stays armed for the core's life, and a ring is one byte, or nothing where an
//! earlier one was not heard yet.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Bytes of rings that one look takes off: more than are ever there at a time but for a storm.
const RINGS: usize = 64;

/// The end that other cores ring.
#[derive(Debug)]
pub struct Ringer(UnixStream);

impl Ringer {
    /// Wakes the core that listens. A full socket means that it is awake already.
    pub fn ring(&self) {
        let _awake_already = (&self.0).write(&[1]);
    }
}

/// The end of a core that is to be woken, on its way to that core.
#[derive(Debug)]
pub struct Clapper(UnixStream);

/// A bell: who rings, and who listens.
///
/// # Errors
/// When there is no descriptor for it.
pub fn bell() -> io::Result<(Ringer, Clapper)> {
    let (ringer, clapper) = UnixStream::pair()?;
    ringer.set_nonblocking(true)?;
    clapper.set_nonblocking(true)?;
    Ok((Ringer(ringer), Clapper(clapper)))
}

/// A bell that its core listens to.
pub struct Bell {
    waiting: monoio::net::UnixStream,
    // A second descriptor of the same socket, to read from without the runtime.
    reading: UnixStream,
}

impl Bell {
    /// Adopts one end; must run on the core that will listen.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn adopt(clapper: Clapper) -> io::Result<Self> {
        let reading = clapper.0.try_clone()?;
        let waiting = monoio::net::UnixStream::from_std(clapper.0)?;
        Ok(Self { waiting, reading })
    }

    /// Waits for a ring. Rings before the wait count, and several are one.
    ///
    /// # Errors
    /// When nobody can ring any more.
    pub async fn rung(&self) -> io::Result<()> {
        loop {
            self.waiting.readable(false).await?;
            match (&self.reading).read(&mut [0; RINGS]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Driver, block_on};

    #[test]
    fn a_ring_of_another_thread_is_heard_on_both_drivers() {
        for driver in [Driver::Epoll, Driver::IoUring] {
            let (ringer, clapper) = bell().unwrap();
            let ringing = std::thread::spawn(move || {
                ringer.ring();
                ringer
            });
            let heard = block_on(driver, async {
                let bell = Bell::adopt(clapper).unwrap();
                bell.rung().await.unwrap();
                drop(ringing.join().unwrap());
                bell.rung().await
            });
            assert!(heard.unwrap().is_err(), "nobody is left to ring");
        }
    }
}
