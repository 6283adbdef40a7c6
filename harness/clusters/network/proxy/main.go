// The network proxy of a cluster: toxiproxy with two toxics of our own, "requests" and "stall".
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
	flag.Parse()
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	logger := zerolog.New(os.Stdout).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger)
	log.Fatal(server.Listen(net.JoinHostPort(*host, *port)))
}
