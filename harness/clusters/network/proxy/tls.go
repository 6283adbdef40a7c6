package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
)

// A link is one side of a relayed connection, with TLS or without.
type link interface {
	net.Conn
	CloseWrite() error
}

// resetLink ends a connection with RST; TLS says nothing of it.
func resetLink(conn link) {
	plain, is := conn.(*net.TCPConn)
	if !is {
		plain = conn.(*tls.Conn).NetConn().(*net.TCPConn)
	}
	reset(plain)
}

// closeWrite ends one direction in good order. The end of TLS alone does not end it for every client.
func closeWrite(conn link) {
	conn.CloseWrite()
	if secured, is := conn.(*tls.Conn); is {
		secured.NetConn().(*net.TCPConn).CloseWrite()
	}
}

// tlsFiles name what a relay needs to end and to begin TLS: the certificate and the key of its node, and the authority
// that issued the certificates of all nodes. All are PEM.
type tlsFiles struct{ Certificate, Key, CA string }

// secures makes what ends TLS with a client as the node does, and begins it with the node; nothing for no files.
func (t *tlsFiles) secures(upstream string) (func(client, server link) (link, link, error), error) {
	if t == nil {
		return func(client, server link) (link, link, error) { return client, server, nil }, nil
	}
	own, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate in " + t.CA)
	}
	host, _, err := net.SplitHostPort(upstream)
	if err != nil {
		return nil, err
	}
	return func(client, server link) (link, link, error) {
		secured := tls.Client(server, &tls.Config{RootCAs: roots, ServerName: host})
		if err := secured.Handshake(); err != nil {
			return nil, nil, err
		}
		return tls.Server(client, &tls.Config{Certificates: []tls.Certificate{own}}), secured, nil
	}, nil
}
