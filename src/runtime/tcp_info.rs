//! What the kernel knows of a TCP connection.

#![expect(unsafe_code, reason = "no safe wrapper offers TCP_INFO")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `tcpi_bytes_acked` of `struct tcp_info` (Linux 4.1 and later).
pub(super) fn bytes_acked(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `info` is writable for `length` bytes, and the kernel writes at most that many.
    let failed = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure has integers only and was zeroed, so each byte of it is initialised
    // even where an older kernel wrote less.
    let info = unsafe { info.assume_init() };
    Ok(info.tcpi_bytes_acked)
}
