//! A real browser: Chromium without a window, driven over `WebDriver`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use reqwest::blocking::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::authority::trusting_nobody;

/// How long one command may take: a machine may be slow to start a browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    client: Client,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let said = BufReader::new(driver.stdout.take().expect("its output"));
        let started =
            said.lines().map_while(Result::ok).find(|line| line.contains("successfully on port "));
        let port = started.as_deref().and_then(|line| line.rsplit("on port ").next());
        let port = port.expect("its port").trim_end_matches('.').to_owned();
        let client = Client::builder().tls_backend_preconfigured(trusting_nobody());
        let client = client.timeout(PATIENCE).build().expect("an HTTP client");
        let profile = tempfile::tempdir().expect("a folder");
        let folder = format!("--user-data-dir={}", profile.path().display());
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=1280,900", folder,
        ]});
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let mut browser = Self {
            driver,
            client,
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        let made = browser.post("", &json!({"capabilities": {"alwaysMatch": wanted}}));
        let id = made["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}"));
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        let url = format!("{}{command}", self.session);
        let request = self.client.post(url).header("Content-Type", "application/json");
        let answer = request.body(body.to_string()).send().expect("the driver answers");
        let answer: Value = serde_json::from_str(&answer.text().expect("text")).expect("JSON");
        answer["value"].clone()
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        let failed = self.post("/url", &json!({"url": url}));
        assert!(failed.is_null(), "{url}: {failed}");
    }

    /// Returns what a script returns.
    #[must_use]
    pub fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Has pages look as on a screen of this width, in the dark or the light theme.
    pub fn look(&self, width: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let theme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &theme);
        let screen =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Returns a picture of the whole page, as PNG.
    #[must_use]
    pub fn picture(&self) -> Vec<u8> {
        let wanted = json!({"format": "png", "captureBeyondViewport": true});
        let taken = self.devtools("Page.captureScreenshot", &wanted);
        let text = taken["data"].as_str().unwrap_or_else(|| panic!("no picture: {taken}"));
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }

    /// Returns what a script hands to the function that it gets as its only argument.
    #[must_use]
    pub fn script_that_calls_back(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({"script": script, "args": []}))
    }

    /// Returns what the console has complained of since it was last asked.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let said = self.post("/se/log", &json!({"type": "browser"}));
        let said = said.as_array().unwrap_or_else(|| panic!("no log: {said}"));
        said.iter().map(ToString::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session.
        let _ended = self.client.delete(&self.session).send();
        let _killed = self.driver.kill();
        let _reaped = self.driver.wait();
    }
}
