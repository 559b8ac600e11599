// Starts the page: views, theme.
import {startChat} from './chat.mjs';
import {byId} from './dom.mjs';

let status = null;  // loaded when first wanted

async function showView() {
  const isStatus = location.hash === '#status';
  byId('chat-view').hidden = isStatus;
  byId('status-view').hidden = !isStatus;
  byId('new').hidden = byId('tune').hidden = isStatus;
  document.title = isStatus ? 'nibble: status' : 'nibble';
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === (isStatus ? '#status' : '#chat')) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (isStatus && !status) {
    status = await import('./status.mjs');
    status.startStatus();
  }
  status?.showStatus(location.hash === '#status' && !document.hidden);
}

const system = matchMedia('(prefers-color-scheme: dark)');

// Choosing what the system has anyway means following it again.
function toggleTheme() {
  const root = document.documentElement;
  const wanted = (root.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark';
  const isSystem = (wanted === 'dark') === system.matches;
  if (isSystem) delete root.dataset.theme;
  else root.dataset.theme = wanted;
  try {
    if (isSystem) localStorage.removeItem('nibble.theme');
    else localStorage.setItem('nibble.theme', wanted);
  } catch {
    // Storage is off: chosen for this visit only.
  }
}

byId('theme').addEventListener('click', toggleTheme);
window.addEventListener('hashchange', showView);
document.addEventListener('visibilitychange', showView);
startChat();
showView();
if (matchMedia('(pointer: fine)').matches) byId('prompt').focus();
