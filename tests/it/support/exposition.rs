//! A strict reader of the Prometheus text format 0.0.4, and what it read.

use std::collections::{BTreeMap, BTreeSet};

/// What one scrape showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exposition {
    /// Kind by family.
    kinds: BTreeMap<String, String>,
    /// Value by series, in the order of the labels as they were written.
    series: BTreeMap<String, f64>,
}

impl Exposition {
    /// Reads a page; anything out of order is the test's failure.
    pub(crate) fn read(page: &str) -> Self {
        let mut read = Self::default();
        let mut family = String::new();
        let mut helped = BTreeSet::new();
        assert!(page.ends_with('\n'), "the last line has no end");
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(!words.is_empty() && !words.contains('\\'), "{line}");
                assert!(helped.insert(name.to_owned()), "twice: {line}");
                name.clone_into(&mut family);
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family, "no help before {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                let again = read.kinds.insert(name.to_owned(), kind.to_owned());
                assert!(again.is_none(), "twice: {line}");
            } else {
                read.sample(&family, line);
            }
        }
        assert_eq!(helped.len(), read.kinds.len());
        read.histograms_add_up();
        read
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(plain), "{line}");
        // Those of session-classification have the names of its specification.
        let ours = ["lanegate_", "lip_session_classification_"];
        assert!(ours.iter().any(|it| name.starts_with(it)), "{line}");
        assert!(name.starts_with(family), "{line} in {family}");
        let suffix = &name[family.len()..];
        match self.kinds[family].as_str() {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            _ => assert_eq!(suffix, "", "{line}"),
        }
        if let Some(labels) = series
            .strip_prefix(name)
            .filter(|labels| !labels.is_empty())
        {
            let inner = labels.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            let mut names = BTreeSet::new();
            for label in inner.unwrap().split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                assert!(names.insert(name.to_owned()), "a label twice: {line}");
                assert!(!value.trim_end_matches('"').contains(['"', '\\']), "{line}");
            }
        }
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let again = self.series.insert(series.to_owned(), value);
        assert!(again.is_none(), "twice: {line}");
    }

    /// Buckets rise, and the last is the count.
    fn histograms_add_up(&self) {
        let histograms = self.kinds.iter().filter(|(_, kind)| *kind == "histogram");
        for (family, _) in histograms {
            let prefix = format!("{family}_bucket{{");
            let mut by_labels: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for (series, value) in self.series.iter().filter(|(it, _)| it.starts_with(&prefix)) {
                let labels = &series[prefix.len()..series.len() - 1];
                let (others, bound) = labels.rsplit_once("le=\"").unwrap();
                let bound = match bound.trim_end_matches('"') {
                    "+Inf" => f64::INFINITY,
                    number => number.parse().unwrap(),
                };
                let others = others.trim_end_matches(',').to_owned();
                by_labels.entry(others).or_default().push((bound, *value));
            }
            assert!(!by_labels.is_empty(), "{family} has no buckets");
            for (labels, mut buckets) in by_labels {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(
                    buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
                    "{family}"
                );
                let (bound, all) = *buckets.last().unwrap();
                assert!(bound.is_infinite(), "{family} {labels}");
                let count = match labels.as_str() {
                    "" => format!("{family}_count"),
                    labels => format!("{family}_count{{{labels}}}"),
                };
                assert!((self.series[&count] - all).abs() < 0.5, "{family} {labels}");
            }
        }
    }

    /// The value of one series, written as on the page.
    pub(crate) fn value(&self, series: &str) -> f64 {
        assert!(self.series.contains_key(series), "no series {series}");
        self.series[series]
    }

    /// The value of a series that counts.
    pub(crate) fn count(&self, series: &str) -> u64 {
        let value = self.value(series);
        assert!(value.fract() == 0.0, "{series} is {value}");
        format!("{value:.0}").parse().unwrap()
    }

    /// The sum of all series of a family.
    pub(crate) fn sum(&self, family: &str) -> u64 {
        let of_family = |series: &str| series.split('{').next() == Some(family);
        let values = self.series.iter().filter(|(series, _)| of_family(series));
        // Not `sum`: that of no series is -0.
        let sum = values.fold(0.0, |sum, (_, value)| sum + value);
        format!("{sum:.0}").parse().unwrap()
    }

    /// All series without their values, but for the one that is there only when there is something to say.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let names = self.series.keys().map(String::as_str);
        names
            .filter(|name| *name != "lanegate_identity_client_share")
            .collect()
    }
}
