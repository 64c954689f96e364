// The yardstick of the no-op in Go: net/http, which reads the fields of the envelope and gives a small answer.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

// fields returns the length-delimited fields of a protobuf message by number; ok is false for anything else.
func fields(message []byte) (found map[uint64][]byte, ok bool) {
	found = make(map[uint64][]byte, 4)
	for len(message) > 0 {
		tag, read := binary.Uvarint(message)
		if read <= 0 || tag&7 != 2 {
			return nil, false
		}
		size, more := binary.Uvarint(message[read:])
		start := read + more
		if more <= 0 || uint64(len(message)-start) < size {
			return nil, false
		}
		found[tag>>3] = message[start : start+int(size)]
		message = message[start+int(size):]
	}
	return found, true
}

func answer(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	envelope, ok := fields(body)
	if !ok || envelope[2] == nil || envelope[3] == nil {
		http.Error(writer, "not an envelope", http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "application/octet-stream")
	writer.Write([]byte{0x0a, 0x00}) // an empty response
}

func main() {
	http.HandleFunc("/rpc_http", answer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("net/http serves http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
