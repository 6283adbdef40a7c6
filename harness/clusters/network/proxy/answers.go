package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// How many of the requests that a rule met are described, at most.
const describedRequests = 10

// A rule says which requests get another answer than the one that the broker gave, and which one. It holds for the
// relays that it names, from its creation to its deletion.
type rule struct {
	Name   string   `json:"name"`
	Relays []string `json:"relays"`
	Kinds  []int16  `json:"kinds"`
	// How many of those requests are met: a share of them, only the one of this number since the rule began, or
	// only the first one of each connection.
	Share  float64 `json:"share"`
	Number int64   `json:"number"`
	First  bool    `json:"first_of_each_connection"`
	// Only the first one on a connection since a request of this kind; below 0: that does not matter.
	After int16 `json:"after"`
	// What happens to the answer: one of acts.
	Act string `json:"act"`
	// Of "error": its number, the share of the partitions that get it, and whether the broker sees the request only
	// after the client has the error.
	Code       int16   `json:"code"`
	Partitions float64 `json:"partitions"`
	Before     bool    `json:"before"`
	// Of "error" and "drop": the broker does not see the request.
	Instead bool `json:"instead"`
	// Of "drop": the connection is closed too.
	Close bool `json:"close"`
	// Of "stale": a broker that does not exist leads; false: the leaders of before do.
	Gone bool `json:"gone"`
	// Of "delay", "throttle" and "error" before the broker sees the request.
	DelayMs int64 `json:"delay_ms"`

	seen, met, unfit atomic.Int64
	number           int // of its creation: rules are asked in this order
	mutex            sync.Mutex
	described        []string
	over             chan struct{}
	leaders          leaders // of "stale"
}

// The acts of a rule. "close": the connection is closed after the answer. "stale": an answer about topics names
// leaders that are not the leaders. "flip": a bit of the messages in a request or an answer is flipped. "detach": the
// broker closes the producer, the consumer, the channel or the connection of a request, and says so. "twice": an answer
// comes twice. "reorder": later answers overtake an answer.
var acts = []string{"error", "drop", "delay", "throttle", "close", "stale", "flip", "detach", "twice", "reorder"}

// By protocol, how a connection is relayed until it ends.
var protocols = map[string]func(c *relayed){
	"kafka":    runKafka,
	"pulsar":   runPulsar,
	"nats":     runNats,
	"rabbitmq": runAmqp,
	"qpid":     runAmqp,
}

// A told rule is what the API says about one.
type told struct {
	// Requests of these kinds, those of them that were met, and answers that could not be changed so.
	Seen      int64    `json:"seen"`
	Met       int64    `json:"met"`
	Unfit     int64    `json:"unfit"`
	Described []string `json:"described"`
}

// chooses decides whether a request is met, and counts it. isFirst: no request of these kinds came on its
// connection before. isNext: none came since the request that the rule waits for.
func (r *rule) chooses(isFirst, isNext bool) bool {
	number := r.seen.Add(1)
	switch {
	case r.After >= 0:
		return isNext
	case r.Number > 0:
		return number == r.Number
	case r.First:
		return isFirst
	}
	return rand.Float64() < r.Share
}

func (r *rule) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (r *rule) note(text string) {
	r.met.Add(1)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.described) < describedRequests {
		r.described = append(r.described, time.Now().UTC().Format("15:04:05.000")+" "+text)
	}
}

// count notes a request that was met, or one whose bytes have no place for the change.
func (r *rule) count(text string, fits bool) {
	if !fits {
		r.unfit.Add(1)
		return
	}
	r.note(text)
}

func (r *rule) tell() told {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return told{r.seen.Load(), r.met.Load(), r.unfit.Load(), slices.Clone(r.described)}
}

// answers holds the relays of a proxy and the rules that are in force.
type answers struct {
	mutex  sync.RWMutex
	relays map[string]net.Listener
	rules  map[string]*rule
	added  int // rules until now
	asked  *history
	away   *refusals
}

func newAnswers(away *refusals) *answers {
	return &answers{
		away: away, relays: map[string]net.Listener{}, rules: map[string]*rule{}, asked: &history{last: map[asked]int64{}},
	}
}

// A history knows when each client last sent a request of a kind, whatever broker it asked. Times are numbers that
// grow with every request.
type history struct {
	count atomic.Int64
	mutex sync.Mutex
	last  map[asked]int64
}

type asked struct {
	client string
	kind   int16
}

// oftenAsked are kinds that a client sends all the time: a lock for each request would slow every connection. A rule
// knows these of its own connection only.
var oftenAsked = []int16{int16(kmsg.Produce), int16(kmsg.Fetch), int16(kmsg.Heartbeat)}

// add notes a request and says when it was.
func (h *history) add(client string, kind int16) int64 {
	now := h.count.Add(1)
	if slices.Contains(oftenAsked, kind) {
		return now
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.last[asked{client, kind}] = now
	return now
}

// of says when a client last sent a request of a kind; 0: never.
func (h *history) of(client string, kind int16) int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.last[asked{client, kind}]
}

// of finds the rules for a kind of request on a relay, the oldest first.
func (a *answers) of(relay string, kind int16) []*rule {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	var found []*rule
	for _, each := range a.rules {
		if slices.Contains(each.Relays, relay) && slices.Contains(each.Kinds, kind) {
			found = append(found, each)
		}
	}
	slices.SortFunc(found, func(x, y *rule) int { return x.number - y.number })
	return found
}

// handle adds the API of relays and rules to that of toxiproxy.
func (a *answers) handle(others http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answers/relays", a.openRelay)
	mux.HandleFunc("DELETE /answers/relays/{name}", a.closeRelay)
	mux.HandleFunc("POST /answers/rules", a.addRule)
	mux.HandleFunc("GET /answers/rules", a.tellRules)
	mux.HandleFunc("DELETE /answers/rules/{name}", a.removeRule)
	mux.Handle("/", others)
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		// As toxiproxy does: a page in a browser must not reach it.
		if strings.HasPrefix(request.UserAgent(), "Mozilla/") {
			http.Error(response, "no browsers", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(response, request)
	})
}

func (a *answers) openRelay(response http.ResponseWriter, request *http.Request) {
	var asked struct {
		Name, Listen, Upstream, Protocol string
		TLS                              *tlsFiles
	}
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	run, known := protocols[asked.Protocol]
	if !known {
		http.Error(response, "no protocol "+asked.Protocol, http.StatusBadRequest)
		return
	}
	secure, err := asked.TLS.secures(asked.Upstream)
	var listener net.Listener
	if err == nil {
		listener, err = net.Listen("tcp", asked.Listen)
	}
	if err != nil {
		http.Error(response, err.Error(), http.StatusConflict)
		return
	}
	a.mutex.Lock()
	_, taken := a.relays[asked.Name]
	if !taken {
		a.relays[asked.Name] = listener
	}
	a.mutex.Unlock()
	if taken {
		listener.Close()
		http.Error(response, "there is a relay "+asked.Name, http.StatusConflict)
		return
	}
	converse := func(client, server link) error {
		if asked.Protocol == "nats" && asked.TLS != nil { // TLS begins after the first line
			if err := greet(client, server); err != nil {
				return err
			}
		}
		client, server, err := secure(client, server)
		if err == nil {
			run(newRelayed(a, asked.Name, client, server))
		}
		return err
	}
	go a.serve(listener, asked.Upstream, converse)
	say(response, map[string]string{"listen": listener.Addr().String()})
}

func (a *answers) closeRelay(response http.ResponseWriter, request *http.Request) {
	a.mutex.Lock()
	listener, found := a.relays[request.PathValue("name")]
	delete(a.relays, request.PathValue("name"))
	a.mutex.Unlock()
	if !found {
		http.Error(response, "no such relay", http.StatusNotFound)
		return
	}
	listener.Close()
	response.WriteHeader(http.StatusNoContent)
}

func (a *answers) addRule(response http.ResponseWriter, request *http.Request) {
	added := &rule{After: -1, over: make(chan struct{})}
	if err := json.NewDecoder(request.Body).Decode(added); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	if !slices.Contains(acts, added.Act) {
		http.Error(response, "no act "+added.Act, http.StatusBadRequest)
		return
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, taken := a.rules[added.Name]; taken {
		http.Error(response, "there is a rule "+added.Name, http.StatusConflict)
		return
	}
	for _, name := range added.Relays {
		if _, found := a.relays[name]; !found {
			http.Error(response, "no relay "+name, http.StatusBadRequest)
			return
		}
	}
	a.added++
	added.number = a.added
	a.rules[added.Name] = added
	response.WriteHeader(http.StatusNoContent)
}

func (a *answers) tellRules(response http.ResponseWriter, _ *http.Request) {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	all := map[string]told{}
	for name, each := range a.rules {
		all[name] = each.tell()
	}
	say(response, all)
}

func (a *answers) removeRule(response http.ResponseWriter, request *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	removed, found := a.rules[request.PathValue("name")]
	if !found {
		http.Error(response, "no such rule", http.StatusNotFound)
		return
	}
	close(removed.over) // what it holds goes on
	delete(a.rules, removed.Name)
	say(response, removed.tell())
}

func say(response http.ResponseWriter, what any) {
	response.Header().Set("Content-Type", "application/json")
	json.NewEncoder(response).Encode(what)
}

// serve accepts connections until the relay is closed.
func (a *answers) serve(listener net.Listener, upstream string, converse func(client, server link) error) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			client := conn.(link)
			conn, err := net.Dial("tcp", upstream)
			if err != nil {
				a.away.reset(client)
				return
			}
			server := conn.(link)
			if converse(client, server) != nil {
				resetLink(client)
				resetLink(server)
			}
			client.Close()
			server.Close()
		}()
	}
}

// end closes both sides of a connection as its cause says: an orderly end is passed on, everything else is a reset.
func end(to, from link, err error) {
	if err == nil || err == io.EOF {
		closeWrite(to)
		return
	}
	resetLink(to)
	resetLink(from)
}

func describe(name string, version int16, client string, number int32, more string) string {
	return strings.TrimSpace(fmt.Sprintf("%s v%d of %q (correlation id %d) %s", name, version, client, number, more))
}
