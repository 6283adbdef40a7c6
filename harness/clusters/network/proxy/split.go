package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2"
)

// The variable by which a client process of a run says what it is.
const roleVariable = "BROKERSTORM_ROLE="

// Column numbers of /proc/net/tcp.
const (
	localColumn  = 1
	remoteColumn = 2
	inodeColumn  = 9
)

// The source of the routes for clients whose role has no route of its own.
const others = "clients"

// Role of a process -> the source of its routes, where the two differ.
var sourceOf = map[string]string{"producer": "producers", "consumer": "consumers"}

// A split is a listener that passes each connection on to the route that is named "source.target.port", where the
// source is the role of the process that opened the connection.
type split struct {
	listen, target, port string
}

type splitFlags []split

func (s *splitFlags) String() string { return fmt.Sprint(*s) }

func (s *splitFlags) Set(text string) error {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return errors.New("must be listen,target,port")
	}
	*s = append(*s, split{parts[0], parts[1], parts[2]})
	return nil
}

// serve listens, and accepts connections until the process ends.
func (s split) serve(routes *toxiproxy.ProxyCollection) error {
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.pass(conn.(*net.TCPConn), routes)
		}
	}()
	return nil
}

func (s split) pass(client *net.TCPConn, routes *toxiproxy.ProxyCollection) {
	conn, err := net.Dial("tcp", s.addressFor(roleOf(client), routes))
	if err != nil {
		reset(client)
		return
	}
	server := conn.(*net.TCPConn)
	var both sync.WaitGroup
	both.Add(2)
	var toServer, toClient atomic.Bool
	go relay(server, client, &toServer, &toClient, &both)
	go relay(client, server, &toClient, &toServer, &both)
	both.Wait()
	client.Close()
	server.Close()
}

// addressFor finds the listener of a role's route; of the route for other clients if the role has none.
func (s split) addressFor(role string, routes *toxiproxy.ProxyCollection) string {
	source := role
	if named, found := sourceOf[role]; found {
		source = named
	}
	for _, name := range []string{source, others} {
		route, err := routes.Get(strings.Join([]string{name, s.target, s.port}, "."))
		if err == nil {
			route.Lock()
			defer route.Unlock()
			return route.Listen
		}
	}
	return ""
}

// relay copies until the source ends its direction. A connection that is reset is reset on the other side, too:
// the client sees what it would see without the splitter. ended and back: whether this direction was ended, and the
// other one.
func relay(to, from *net.TCPConn, ended, back *atomic.Bool, done *sync.WaitGroup) {
	defer done.Done()
	if _, err := io.Copy(to, from); err != nil || wasReset(from, back) {
		reset(to)
		reset(from)
		return
	}
	ended.Store(true)
	to.CloseWrite()
}

func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// roleOf says what the process is that opened a connection; empty if it is on another machine or says nothing.
func roleOf(conn *net.TCPConn) string {
	inode := inodeOf(conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr))
	if inode == "" {
		return ""
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if role := roleVariableOf(process); role != "" && holds(process, "socket:["+inode+"]") {
			return role
		}
	}
	return ""
}

// inodeOf finds the socket whose own end is local and whose other end is remote. A JVM uses sockets of IPv6
// for addresses of IPv4.
func inodeOf(local, remote *net.TCPAddr) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := inodeIn(table, endText(local), endText(remote)); inode != "" {
			return inode
		}
	}
	return ""
}

func inodeIn(table, local, remote string) string {
	file, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) > inodeColumn &&
			strings.HasSuffix(columns[localColumn], local) &&
			strings.HasSuffix(columns[remoteColumn], remote) {
			return columns[inodeColumn]
		}
	}
	return ""
}

// endText is an address as the kernel's tables have it: the bytes of the address as one number of the machine,
// in hexadecimal, and the port.
func endText(end *net.TCPAddr) string {
	four := end.IP.To4()
	number := make([]byte, 4)
	binary.BigEndian.PutUint32(number, binary.NativeEndian.Uint32(four))
	return fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(number)), end.Port)
}

func roleVariableOf(process string) string {
	environment, err := os.ReadFile(process + "/environ")
	if err != nil {
		return ""
	}
	for _, variable := range bytes.Split(environment, []byte{0}) {
		if role, found := strings.CutPrefix(string(variable), roleVariable); found {
			return role
		}
	}
	return ""
}

func holds(process, socket string) bool {
	descriptors, err := os.ReadDir(process + "/fd")
	if err != nil {
		return false
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(process + "/fd/" + descriptor.Name()); err == nil && target == socket {
			return true
		}
	}
	return false
}
