// Loaded by Node before a program under `vertexrig local run`: connections to hosts of Google's APIs lead to the front, whose
// address is in VERTEXRIG_NAMES. Node's https module asks no proxy, whatever the environment says, nor did its fetch before 22.21.
'use strict';
const net = require('net');

const google = host => /(^|\.)googleapis\.com\.?$/i.test(host || '');
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...given) {
  // net.connect hands on its own array of options and callback, tls.connect the options.
  const at = Array.isArray(given[0]) ? given[0] : given;
  const options = at[0];
  if (options && google(options.host) && Number(options.port) === 443 && process.env.VERTEXRIG_NAMES) {
    const [host, port] = process.env.VERTEXRIG_NAMES.split(':');
    at[0] = {...options, host, port};
  }
  return connect.apply(this, given);
};
