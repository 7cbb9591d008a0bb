// Loaded by Node before a program under `vertexrig local run`: hosts of Google's APIs are asked through the proxy of
// HTTPS_PROXY. Node's https module asks no proxy, whatever the environment says, and its fetch did not before 22.21 and 24.5.
'use strict';
const http = require('http');
const https = require('https');
const tls = require('tls');

const google = host => /(^|\.)googleapis\.com\.?$/i.test(host || '');
const direct = https.Agent.prototype.createConnection;

https.Agent.prototype.createConnection = function (options, created) {
  const host = options.host || options.hostname;
  if (!google(host) || options.socket || !process.env.HTTPS_PROXY) return direct.call(this, options, created);
  const proxy = new URL(process.env.HTTPS_PROXY);
  const login = Buffer.from(`${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`);
  const asked = http.request({
    host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${host}:${options.port || 443}`, agent: false,
    headers: {'Proxy-Authorization': `Basic ${login.toString('base64')}`},
  });
  asked.once('error', created);
  asked.once('connect', (answer, socket) => {
    if (answer.statusCode !== 200) {
      socket.destroy();
      return created(new Error(`${host}: the local Vertex answers ${answer.statusCode} ${answer.statusMessage}`));
    }
    created(null, tls.connect({...options, path: undefined, socket, servername: options.servername || host}));
  });
  asked.end();
};

const [major, minor] = process.versions.node.split('.').map(Number);
const proxied = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);
if (!proxied && globalThis.fetch) {
  const fetch = globalThis.fetch;
  globalThis.fetch = function (input, init) {
    const host = new URL(input instanceof Request ? input.url : input).hostname;
    if (!google(host)) return fetch(input, init);
    return Promise.reject(new Error(`${host}: fetch of Node ${process.versions.node} asks no proxy; Node 22.21 or 24.5 does`));
  };
}
