// Runs before the first paint, so that a chosen theme never flashes the other one.
'use strict';
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('nibble.theme');
  } catch {
    // Storage is off: follow the system.
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
