// The page: what its address asks for is shown. `#/` a new conversation, `#/c/ID` one of the kept, `#/dashboard`.

import { byId } from "./lib/dom.js";
import { ChatView } from "./chat/view.js";
import { openStore } from "./chat/store.js";
import { Dashboard } from "./dashboard/view.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";

const store = await openStore((id) => chat.changedElsewhere(id));
const settings = new Settings(store, () => Promise.all([chat.refreshList(), chat.refreshModels()]));
const askForKey = (failure) => settings.askForKey(failure);
const chat = new ChatView(store, askForKey);
const dashboard = new Dashboard(askForKey);
const sidebar = new Sidebar();

async function show() {
  const [, view = "", id = null] = location.hash.split("/");
  const isDashboard = view === "dashboard";
  byId("chat-view").hidden = isDashboard;
  byId("dashboard-view").hidden = !isDashboard;
  sidebar.mark(isDashboard ? "dashboard" : "chat");
  if (isDashboard) {
    document.title = "Dashboard – Millstream";
    dashboard.start();
    return;
  }
  dashboard.stop();
  document.title = "Millstream";
  if (!(await chat.open(view === "c" ? id : null))) history.replaceState(null, "", "#/");
}

addEventListener("hashchange", async () => {
  await show();
  // The focus follows to what is new; on a touch screen the keyboard would cover it.
  if (!byId("dashboard-view").hidden) byId("dashboard-title").focus();
  else if (!matchMedia("(pointer: coarse)").matches) chat.focus();
});
byId("new-chat").addEventListener("click", (event) => {
  event.preventDefault();
  if (location.hash === "#/" || location.hash === "") {
    chat.open(null).then(() => chat.focus());
  } else {
    location.hash = "#/";
  }
});
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

await show();
document.documentElement.dataset.ready = "true";
await chat.refreshModels();
