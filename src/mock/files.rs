//! Response files: stored answers of providers, good and bad, served byte for byte.
//!
//! The folder holds the files and `responses.jsonl`, one JSON object a line with at least `file`,
//! `status` and `headers`. All of it is read at the start, so that a missing file is found at once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

const MANIFEST: &str = "responses.jsonl";
/// Bytes of all files of one folder.
const FOLDER_BYTES_MAX: usize = 256 << 20;

/// One stored answer.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Arc<[u8]>,
}

impl File {
    /// True for an event stream, which real providers send in chunks.
    pub(crate) fn is_events(&self) -> bool {
        self.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("text/event-stream")
        })
    }
}

/// Stored answers by file name.
#[derive(Debug, Default)]
pub(crate) struct Files(BTreeMap<String, File>);

impl Files {
    /// Reads the folder. Fails with the line of the manifest that is wrong or names no file.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let manifest = fs::read_to_string(folder.join(MANIFEST))?;
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        for (number, line) in manifest.lines().enumerate() {
            let at_line = |reason: String| {
                io::Error::other(format!("{MANIFEST} line {}: {reason}", number + 1))
            };
            let row = serde_json::from_str(line).map_err(|error| at_line(error.to_string()))?;
            let (name, status, headers) =
                parsed(&row).ok_or_else(|| at_line("expected file, status, headers".to_owned()))?;
            let body =
                fs::read(folder.join(name)).map_err(|error| at_line(format!("{name}: {error}")))?;
            bytes += body.len();
            if bytes > FOLDER_BYTES_MAX {
                return Err(at_line("more than 256 MiB of responses".to_owned()));
            }
            files.insert(
                name.to_owned(),
                File {
                    status,
                    headers,
                    body: body.into(),
                },
            );
        }
        Ok(Self(files))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&File> {
        self.0.get(name)
    }
}

type Row<'a> = (&'a str, u16, Vec<(String, String)>);

fn parsed(row: &Value) -> Option<Row<'_>> {
    let name = row["file"].as_str().filter(|name| !name.contains('/'))?;
    let status = u16::try_from(row["status"].as_u64()?).ok()?;
    let headers = row["headers"].as_object()?.iter();
    let headers = headers.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Some((name, status, headers.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_read_whole_and_faults_name_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join(MANIFEST);
        fs::write(folder.path().join("a.sse"), "data: x\n\n").unwrap();
        let row = r#"{"file":"a.sse","status":201,"headers":{"content-type":"text/event-stream"}}"#;
        fs::write(&manifest, row).unwrap();
        let files = Files::read(folder.path()).unwrap();
        let file = files.get("a.sse").unwrap();
        assert_eq!(
            (file.status, &*file.body, file.is_events()),
            (201, &b"data: x\n\n"[..], true)
        );
        assert!(files.get("b.sse").is_none());

        let escaping = row.replace("a.sse", "../a.sse");
        for wrong in [
            "{",
            r#"{"file":"a.sse"}"#,
            &escaping,
            &row.replace("a.sse", "gone.sse"),
        ] {
            fs::write(&manifest, format!("{row}\n{wrong}")).unwrap();
            let error = Files::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("line 2"), "{error}");
        }
    }
}
