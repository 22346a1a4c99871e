//! What a client's tools can do, as the names of the tools tell.
//!
//! A name is reduced to a category at once and forgotten. Names are compared whole, letter case and white
//! space around them aside; what is not in a table is unknown, which is evidence of nothing.

use std::ops::BitOr;

use crate::peek::ToolName;

/// A category of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Reads a file.
    FileRead,
    /// Lists or searches files.
    FileSearch,
    /// Runs commands of the operating system.
    OsCommand,
    /// Changes or writes a file.
    FileEdit,
    /// Deletes a file or folder.
    FileRemove,
    /// Searches, fetches or drives the web.
    WebAccess,
    /// Anything else.
    UnknownSeen,
}

impl Tool {
    /// All of them, in the order of the remote document.
    pub const ALL: [Self; 7] = [
        Self::FileRead,
        Self::FileSearch,
        Self::OsCommand,
        Self::FileEdit,
        Self::FileRemove,
        Self::WebAccess,
        Self::UnknownSeen,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileRead => "file_read",
            Self::FileSearch => "file_search",
            Self::OsCommand => "os_command",
            Self::FileEdit => "file_edit",
            Self::FileRemove => "file_remove",
            Self::WebAccess => "web_access",
            Self::UnknownSeen => "unknown_seen",
        }
    }

    /// The category of a tool with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        lowered(name, seed)
    }

    /// The category in the wider table of `agent-family`: names of more clients, and those of tools that come
    /// through a server (`mcp__files__read_file`).
    #[must_use]
    pub fn of_family(name: &str) -> Self {
        lowered(name, |name| {
            let bare = bare(name);
            match seed(bare) {
                Self::UnknownSeen => wider(bare),
                known => known,
            }
        })
    }
}

/// Bytes of the longest name in the tables, and more.
const NAME_BYTES: usize = 96;

fn lowered(name: &str, category: impl FnOnce(&[u8]) -> Tool) -> Tool {
    let name = name.trim();
    let mut bytes = [0; NAME_BYTES];
    let Some(lower) = bytes.get_mut(..name.len()) else {
        return Tool::UnknownSeen;
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    category(lower)
}

/// The name without that of the server it comes through.
fn bare(name: &[u8]) -> &[u8] {
    let inner = name.strip_prefix(b"mcp__").and_then(|rest| {
        let end = rest.windows(2).position(|pair| pair == b"__")?;
        rest.get(end + 2..)
    });
    inner.unwrap_or(name)
}

const fn seed(name: &[u8]) -> Tool {
    match name {
        b"read" | b"read_file" | b"notebook_read" => Tool::FileRead,
        b"grep"
        | b"find"
        | b"glob"
        | b"ls"
        | b"search_files"
        | b"list_files"
        | b"list_code_definition_names"
        | b"semantic_search"
        | b"codebase_search" => Tool::FileSearch,
        b"bash"
        | b"execute_command"
        | b"exec"
        | b"exec_command"
        | b"shell_command"
        | b"terminal"
        | b"process"
        | b"write_stdin"
        | b"background_process"
        | b"interactive_terminal"
        | b"powershell" => Tool::OsCommand,
        b"edit" | b"write" | b"replace_in_file" | b"write_to_file" | b"write_file" | b"patch"
        | b"apply_patch" | b"notebook_edit" | b"notebookedit" => Tool::FileEdit,
        b"delete_file" | b"remove_file" | b"delete_directory" | b"remove_directory" => {
            Tool::FileRemove
        }
        b"web.run"
        | b"web_search"
        | b"websearch"
        | b"web_fetch"
        | b"webfetch"
        | b"web_extract"
        | b"x_search"
        | b"browser"
        | b"browser_action"
        | b"browser_back"
        | b"browser_cdp"
        | b"browser_click"
        | b"browser_console"
        | b"browser_dialog"
        | b"browser_get_images"
        | b"browser_navigate"
        | b"browser_press"
        | b"browser_scroll"
        | b"browser_snapshot"
        | b"browser_type"
        | b"browser_vision" => Tool::WebAccess,
        _ => Tool::UnknownSeen,
    }
}

/// Names that agents use and the first table does not know. Only of tools that do nothing else.
const fn wider(name: &[u8]) -> Tool {
    match name {
        b"view" | b"view_file" | b"view_image" | b"read_many_files" | b"notebookread"
        | b"readfile" | b"open_file" | b"cat" => Tool::FileRead,
        b"grep_search"
        | b"file_search"
        | b"list_dir"
        | b"list_directory"
        | b"list_dir_recursive"
        | b"search_file_content"
        | b"read_folder"
        | b"view_repo_map"
        | b"view_subdirectory"
        | b"search"
        | b"ripgrep" => Tool::FileSearch,
        b"shell"
        | b"local_shell"
        | b"container.exec"
        | b"run_shell_command"
        | b"run_terminal_cmd"
        | b"run_terminal_command"
        | b"run_in_terminal"
        | b"run_command"
        | b"bashoutput"
        | b"killshell" => Tool::OsCommand,
        b"multiedit"
        | b"multi_edit"
        | b"edit_file"
        | b"create_file"
        | b"create_new_file"
        | b"edit_existing_file"
        | b"single_find_and_replace"
        | b"str_replace_editor"
        | b"str_replace_based_edit_tool"
        | b"text_editor"
        | b"replace"
        | b"search_replace"
        | b"insert_edit_into_file"
        | b"editor" => Tool::FileEdit,
        b"delete" | b"rm" => Tool::FileRemove,
        b"google_web_search" | b"fetch" | b"fetch_url_content" | b"search_web" => Tool::WebAccess,
        _ => Tool::UnknownSeen,
    }
}

/// Categories of the tools of one request: 16 bits, however many tools there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolSet(u16);

impl ToolSet {
    /// No tools.
    pub const EMPTY: Self = Self(0);
    const LOOKS: Self = Self::just(Tool::FileRead).and(Tool::FileSearch);
    const CHANGES: Self = Self::just(Tool::FileEdit).and(Tool::FileRemove);
    const RUNS: Self = Self::just(Tool::OsCommand);

    const fn just(tool: Tool) -> Self {
        Self(1 << tool as u16)
    }

    const fn and(self, tool: Tool) -> Self {
        Self(self.0 | Self::just(tool).0)
    }

    /// Adds a tool of this category.
    pub fn add(&mut self, tool: Tool) {
        *self = self.and(tool);
    }

    /// Whether there is a tool of this category.
    #[must_use]
    pub const fn has(self, tool: Tool) -> bool {
        self.meets(Self::just(tool))
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The categories that are there.
    pub fn iter(self) -> impl Iterator<Item = Tool> {
        Tool::ALL.into_iter().filter(move |tool| self.has(*tool))
    }

    /// Rule B: reads or searches, changes or removes, and runs commands.
    #[must_use]
    pub const fn is_coding_cluster(self) -> bool {
        self.meets(Self::LOOKS) && self.meets(Self::CHANGES) && self.meets(Self::RUNS)
    }

    /// What rule C asks beside a marker: reads or searches, and changes, removes or runs commands. Where both
    /// is there, rule B has decided.
    #[must_use]
    pub const fn is_half_cluster(self) -> bool {
        self.meets(Self::LOOKS) && (self.meets(Self::CHANGES) || self.meets(Self::RUNS))
    }
}

impl BitOr<Tool> for ToolSet {
    type Output = Self;

    fn bitor(self, tool: Tool) -> Self {
        self.and(tool)
    }
}

/// What the tools of one request can do, after both tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolEvidence {
    session: ToolSet,
    family: ToolSet,
}

impl ToolEvidence {
    /// The categories of one name as bits, to be joined with those of others.
    #[must_use]
    pub fn reduce(name: ToolName<'_>) -> u32 {
        let category = |of: fn(&str) -> Tool| match name {
            ToolName::Named(name) => of(name),
            ToolName::BeyondBound => Tool::UnknownSeen,
        };
        let (session, family) = (category(Tool::of), category(Tool::of_family));
        u32::from(ToolSet::just(session).0) | u32::from(ToolSet::just(family).0) << 16
    }

    /// What the bits of all names say.
    #[must_use]
    pub fn of(bits: u32) -> Self {
        let [session, family] = [bits, bits >> 16].map(|half| {
            let present = |tool: &Tool| half & u32::from(ToolSet::just(*tool).0) != 0;
            Tool::ALL
                .into_iter()
                .filter(present)
                .fold(ToolSet::EMPTY, ToolSet::and)
        });
        Self { session, family }
    }

    /// The categories after the table of `session-classification`.
    #[must_use]
    pub const fn session(&self) -> ToolSet {
        self.session
    }

    /// The categories after the table of `agent-family`.
    #[must_use]
    pub const fn family(&self) -> ToolSet {
        self.family
    }
}
