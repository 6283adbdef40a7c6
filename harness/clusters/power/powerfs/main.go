// A file system that knows what was synced: it passes everything through to the folder that it is mounted on,
// and drops, when power is lost, what was written and not synced.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	socket := flag.String("socket", "", "abstract unix socket to be asked at")
	unlinked := flag.Bool("keep-unlinked", false, "keep what folders lose until they are synced")
	flag.Parse()
	disks := map[string]*disk{}
	for _, pair := range flag.Args() {
		name, folder, _ := strings.Cut(pair, "=")
		d, err := openDisk(name, folder, *unlinked)
		if err == nil {
			err = d.mount()
		}
		if err != nil {
			for _, other := range disks {
				other.unmount()
			}
			log.Fatalf("%s: %v", folder, err)
		}
		disks[name] = d
	}
	listener, err := net.Listen("unix", "@"+*socket)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go serve(listener, disks)
	<-ended
	for _, d := range disks {
		if err := d.unmount(); err != nil {
			log.Printf("%s: %v", d.folder, err)
		}
	}
}

// A question of the harness: state of a disk, that all written so far counts as synced, what its loss of power
// dropped, or to begin, count or undo a disturbance.
type question struct {
	Do   string `json:"do"` // "state", "keep", "lose", "disturb", "count" or "undo"
	Disk string `json:"disk"`
	Torn bool   `json:"torn"`
	Lost bool   `json:"lost"` // changes of folders that were not synced are gone, too
	Seed int64  `json:"seed"`

	Name        string       `json:"name"` // of a disturbance; empty: all, which are undone
	Disturbance *disturbance `json:"disturbance"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	Loss
	Counts *Counts `json:"counts,omitempty"`
}

func serve(listener net.Listener, disks map[string]*disk) {
	for {
		peer, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer peer.Close()
			var asked question
			if !isOurs(peer) || json.NewDecoder(peer).Decode(&asked) != nil {
				return
			}
			json.NewEncoder(peer).Encode(reply(disks, asked))
		}()
	}
}

func reply(disks map[string]*disk, asked question) answer {
	d, known := disks[asked.Disk]
	if !known {
		return answer{Error: fmt.Sprintf("no disk %q", asked.Disk)}
	}
	switch asked.Do {
	case "keep":
		d.keep()
		fallthrough
	case "state":
		return answer{Loss: d.unsynced()}
	case "disturb":
		if asked.Disturbance == nil {
			return answer{Error: "no disturbance"}
		}
		if err := d.begin(asked.Name, asked.Disturbance); err != nil {
			return answer{Error: err.Error()}
		}
		fallthrough
	case "count":
		return answer{Counts: d.counts(asked.Name)}
	case "undo":
		counts := d.counts(asked.Name)
		d.undo(asked.Name)
		return answer{Counts: counts}
	}
	loss, err := d.lose(asked.Torn, asked.Lost, asked.Seed)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Loss: loss}
}

// isOurs refuses other users: an abstract socket has no file mode.
func isOurs(peer net.Conn) bool {
	raw, err := peer.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		ours = err == nil && int(cred.Uid) == os.Getuid()
	})
	return ours
}
