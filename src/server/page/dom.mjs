// Elements without markup: text reaches the page as text nodes only.

export const byId = (id) => document.getElementById(id);

const SVG = 'http://www.w3.org/2000/svg';

// el('a', {class: 'x', href: '/', onclick: f}, 'text', otherElement)
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') node.className = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (typeof value === 'boolean') node.toggleAttribute(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// One of the symbols of index.html.
export const icon = (name) => svg('svg', {class: 'icon', 'aria-hidden': 'true'}, svg('use', {href: `#i-${name}`}));

export function iconButton(name, label, onclick, extra = {}) {
  return el('button', {type: 'button', class: 'quiet', title: label, 'aria-label': label, onclick, ...extra}, icon(name));
}

// True when it worked. Pages over plain HTTP from another machine have no clipboard object.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', {class: 'offscreen', readonly: true});
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

export function copyButton(label, text) {
  const button = iconButton('copy', label, async () => {
    button.replaceChildren(icon(await copyText(text()) ? 'check' : 'alert'));
    setTimeout(() => button.replaceChildren(icon('copy')), 1200);
  });
  return button;
}
