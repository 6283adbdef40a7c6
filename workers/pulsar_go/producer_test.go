package main

import (
	"bytes"
	"testing"

	"brokerstorm/kit"
)

func TestPropertiesHaveTheIdentityInTextThatReadersJoinWithTheBody(t *testing.T) {
	headers := map[string]string{"tenant": "acme"}
	p := &producer{headers: headers}
	identity := bytes.Repeat([]byte{0xfe}, kit.MinPayloadBytes)
	made := p.properties(identity)
	if made["tenant"] != "acme" || len(made) != 2 || len(headers) != 1 {
		t.Fatal(made, headers)
	}
	joined := kit.JoinedText([]byte("body"), made[kit.IdentityHeader])
	if len(joined) != len(identity)+4 || !bytes.Contains(joined, []byte("body")) {
		t.Fatal(joined)
	}
	if got := kit.JoinedText([]byte("body"), "no base64!"); string(got) != "body" {
		t.Fatal(got)
	}
	if got := p.properties(nil); len(got) != 1 {
		t.Fatal(got)
	}
}
