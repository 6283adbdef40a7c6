// The network proxy of a cluster: toxiproxy with two toxics of our own, "requests" and "stall", listeners that pass
// connections on by the role of the client ("split"), and relays that change answers ("answers").
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// How long a request to the API may take to arrive, and its answer to leave.
const apiTimeout = 30 * time.Second

func main() {
	host := flag.String("host", "127.0.0.1", "address that the API listens on")
	port := flag.String("port", "8474", "port that the API listens on")
	var splits splitFlags
	about := "listen,target,port: where to listen, and the rest of the names of its routes; may be repeated"
	flag.Var(&splits, "split", about)
	flag.Parse()
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	away := &refusals{log: os.Stdout}
	logger := zerolog.New(away).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger)
	away.routes = server.Collection
	for _, split := range splits {
		if err := split.serve(server.Collection); err != nil {
			log.Fatal(err)
		}
	}
	api := &http.Server{
		Addr:         net.JoinHostPort(*host, *port),
		Handler:      newAnswers(away).handle(server.Routes()),
		WriteTimeout: apiTimeout,
		ReadTimeout:  apiTimeout,
	}
	log.Fatal(api.ListenAndServe())
}
