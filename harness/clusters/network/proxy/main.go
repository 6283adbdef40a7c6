// The network proxy of a cluster: toxiproxy with two toxics of our own, "requests" and "stall", and listeners
// that pass connections on by the role of the client ("split").
package main

import (
	"flag"
	"log"
	"net"
	"os"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address that the API listens on")
	port := flag.String("port", "8474", "port that the API listens on")
	var splits splitFlags
	flag.Var(&splits, "split", "listen,producers,consumers,others: addresses; may be given several times")
	flag.Parse()
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	logger := zerolog.New(os.Stdout).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	for _, split := range splits {
		if err := split.serve(); err != nil {
			log.Fatal(err)
		}
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger)
	log.Fatal(server.Listen(net.JoinHostPort(*host, *port)))
}
