package main

import (
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

const (
	// How long toxiproxy may take to keep a connection that it has opened, and how often it is asked.
	keptAfter = time.Second / 4
	askEvery  = time.Millisecond
	// The state of a connection in the first byte of the kernel's tcp_info, once neither end can send.
	tcpClosed = 7
)

// refusals resets connections of clients to a node that is away, which would be refused without the proxy. Toxiproxy
// closes them in good order, as brokers only do on purpose, and clients may take that for a wrong configuration.
type refusals struct {
	log    io.Writer
	routes *toxiproxy.ProxyCollection
}

// Write reads the log of toxiproxy, which writes this line before it closes the connection of the client.
func (r *refusals) Write(line []byte) (int, error) {
	var said struct{ Message, Client string }
	if json.Unmarshal(line, &said) == nil && said.Message == "Unable to open connection to upstream" {
		resetWhenClosed(said.Client)
	}
	return r.log.Write(line)
}

// reset ends a connection of toxiproxy to a relay of ours with RST, and that of its client, too.
func (r *refusals) reset(conn link) {
	own := conn.RemoteAddr().String()
	for until := time.Now().Add(keptAfter); time.Now().Before(until); time.Sleep(askEvery) {
		if client := r.clientOf(own); client != "" {
			resetWhenClosed(client)
			break
		}
	}
	resetLink(conn)
}

// clientOf finds the client whose bytes go by a connection of toxiproxy to a node, by its own end; empty if it is not
// known yet. Toxiproxy keeps its connections to itself.
func (r *refusals) clientOf(own string) string {
	for _, route := range r.routes.Proxies() {
		kept := reflect.ValueOf(route).Elem().FieldByName("connections")
		if client := clientIn(kept, own); client != "" {
			return client
		}
	}
	return ""
}

func clientIn(kept reflect.Value, own string) string {
	guard := (*toxiproxy.ConnectionList)(kept.Addr().UnsafePointer())
	guard.Lock()
	defer guard.Unlock()
	for each := kept.FieldByName("list").MapRange(); each.Next(); {
		client, isToNode := strings.CutSuffix(each.Key().String(), "upstream")
		conn := (*net.TCPConn)(each.Value().Elem().UnsafePointer())
		if isToNode && conn.LocalAddr().String() == own {
			return client
		}
	}
	return ""
}

// resetWhenClosed finds the socket of this process whose other end is a client.
func resetWhenClosed(client string) {
	wanted, err := netip.ParseAddrPort(client)
	if err != nil {
		return
	}
	sockets, _ := os.ReadDir("/proc/self/fd")
	for _, each := range sockets {
		number, _ := strconv.Atoi(each.Name())
		if !isTo(number, wanted) {
			continue
		}
		own, err := syscall.Dup(number) // it may be closed, and another connection get its number
		if err != nil {
			continue
		}
		if isTo(own, wanted) {
			syscall.SetsockoptLinger(own, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
		}
		syscall.Close(own)
	}
}

// isTo tells whether a descriptor is a socket whose other end is a client.
func isTo(number int, client netip.AddrPort) bool {
	peer, err := syscall.Getpeername(number)
	return err == nil && addressOf(peer) == client
}

func addressOf(end syscall.Sockaddr) netip.AddrPort {
	switch known := end.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(known.Addr), uint16(known.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(known.Addr).Unmap(), uint16(known.Port))
	}
	return netip.AddrPort{}
}

// wasReset says whether the other end of a connection reset it, unless this end was closed before. A reset that was
// noticed while writing looks like an orderly end to who reads.
func wasReset(conn *net.TCPConn, isClosed *atomic.Bool) bool {
	raw, err := conn.SyscallConn()
	if err != nil || isClosed.Load() {
		return false
	}
	state := 0
	raw.Control(func(number uintptr) {
		state, _ = syscall.GetsockoptInt(int(number), syscall.IPPROTO_TCP, syscall.TCP_INFO)
	})
	return state&0xff == tcpClosed
}
