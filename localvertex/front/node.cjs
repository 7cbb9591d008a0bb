// Loaded by Node before a program under `vertexrig local run`: connections to hosts of Google's APIs lead to the front, whose
// address is in VERTEXRIG_NAMES; what the proxy in HTTPS_PROXY refuses is refused. Node's https module asks no proxy, whatever
// the environment says, nor did its fetch before 22.21.
'use strict';
const net = require('net');

const google = host => /(^|\.)googleapis\.com\.?$/i.test(host || '');
const connect = net.Socket.prototype.connect;
const decided = new Map(); // why a host is refused, '' if it is not

function refusal(host, done) {
  const direct = (process.env.NO_PROXY || '').split(',').map(one => one.trim().replace(/^\./, '')).filter(Boolean);
  if (!process.env.HTTPS_PROXY || direct.some(one => one === '*' || `.${host}`.endsWith(`.${one}`))) return done('');
  if (google(host)) return done(`${host} accepts only https here`);
  if (decided.has(host)) return done(decided.get(host));
  const {hostname, port, username, password} = new URL(process.env.HTTPS_PROXY);
  const auth = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const headers = {'Proxy-Authorization': `Basic ${Buffer.from(auth).toString('base64')}`};
  const asked = {host: hostname, port, method: 'CONNECT', path: `${host}:443`, headers, agent: false};
  require('http').request(asked).on('connect', (answer, socket) => {
    socket.destroy();
    const why = answer.statusCode === 200 ? '' : answer.statusMessage || `${host} is refused by the proxy`;
    // Another answer, such as that of a proxy with too many connections, is of this moment only.
    if ([200, 403].includes(answer.statusCode)) decided.set(host, why);
    done(why);
  }).on('error', error => done(`${host} cannot be reached: the local Vertex's proxy does not answer: ${error.message}`)).end();
}

net.Socket.prototype.connect = function (...given) {
  // net.connect hands on its own array of options and callback, tls.connect the options.
  const at = Array.isArray(given[0]) ? given[0] : given;
  const options = at[0];
  const port = options && process.env.VERTEXRIG_NAMES ? Number(options.port) : 0;
  if (port === 443 && google(options.host)) {
    const [host, port] = process.env.VERTEXRIG_NAMES.split(':');
    at[0] = {...options, host, port};
  } else if ((port === 443 || port === 80) && /\./.test(options.host)) {
    // Node asks this for names alone, not for addresses.
    const lookup = (host, how, done) => refusal(host.toLowerCase(), why =>
      why ? done(Object.assign(new Error(why), {code: 'ENOTFOUND'})) : (options.lookup || require('dns').lookup)(host, how, done));
    at[0] = {...options, lookup};
  }
  return connect.apply(this, given);
};
