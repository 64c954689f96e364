// A FerretDB that listens on one address, keeps its data in SQLite files and carries out one write at a time. Its own
// command does not build from the module alone. And it changes a document in two steps: it looks, then it writes, so
// that of two clients both may win a change that only one of them may make. Its collections get an index that serves
// its lookups by _id (lookups.go).
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

const (
	headerBytes  = 16
	opReply      = 1
	opQuery      = 2004 // of the first greeting
	opMsg        = 2013
	firstName    = headerBytes + 4 + 1 + 4 + 1 // behind header, flags, kind of section, length of the document, type
	longestBytes = 48_000_000
	longestName  = 256
)

var kinds = map[uint32]bool{opReply: true, opQuery: true, opMsg: true}

var writes = map[string]bool{
	"insert": true, "update": true, "delete": true, "findAndModify": true, "create": true, "drop": true,
}

func main() {
	listen := flag.String("listen", "127.0.0.1:27017", "HOST:PORT of the MongoDB protocol")
	data := flag.String("data", "", "directory of the SQLite files, with a slash at its end")
	flag.Parse()

	// Below errors it writes every refused request in full.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if err := run(*listen, *data, logger); err != nil {
		logger.Error("ended", "error", err)
		os.Exit(1)
	}
}

func run(listen, data string, logger *slog.Logger) error {
	private, err := os.MkdirTemp("", "ferretdb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(private)
	socket := filepath.Join(private, "socket")
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{Unix: socket},
		Handler:   "sqlite",
		SQLiteURL: "file:" + data,
		Logger:    logger,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go accept(listener, socket, &writer{lookups: newLookups(data, logger)})
	return server.Run(ctx)
}

// writer carries out writes, one at a time.
type writer struct {
	turn    sync.Mutex
	lookups *lookups
}

func accept(listener net.Listener, socket string, writing *writer) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(client, socket, writing)
	}
}

// serve passes on what a client asks and what it is answered, until either of the two ends.
func serve(client net.Conn, socket string, writing *writer) {
	defer client.Close()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer server.Close()
	for {
		asked, err := message(client)
		if err != nil {
			return
		}
		answer, err := answered(server, asked, writing)
		if err != nil {
			return
		}
		if _, err = client.Write(answer); err != nil {
			return
		}
	}
}

func answered(server net.Conn, asked []byte, writing *writer) ([]byte, error) {
	name, collection := command(asked)
	if !writes[name] {
		return exchanged(server, asked)
	}
	writing.turn.Lock()
	defer writing.turn.Unlock()
	answer, err := exchanged(server, asked)
	if err == nil {
		writing.lookups.after(name, collection)
	}
	return answer, err
}

func exchanged(server net.Conn, asked []byte) ([]byte, error) {
	if _, err := server.Write(asked); err != nil {
		return nil, err
	}
	return message(server)
}

func message(peer io.Reader) ([]byte, error) {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(peer, header); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header)
	if length < headerBytes || length > longestBytes || !kinds[binary.LittleEndian.Uint32(header[12:])] {
		return nil, io.ErrUnexpectedEOF // TLS, say
	}
	whole := append(make([]byte, 0, length), header...)[:length]
	_, err := io.ReadFull(peer, whole[headerBytes:])
	return whole, err
}

// command is the name of what is asked, and the collection it is about, after its database.
func command(asked []byte) (name, collection string) {
	if len(asked) < firstName || binary.LittleEndian.Uint32(asked[12:]) != opMsg {
		return "", ""
	}
	first, rest, _ := bytes.Cut(asked[firstName:], []byte{0})
	_, database, _ := bytes.Cut(rest, []byte("\x02$db\x00"))
	return string(first[:min(len(first), longestName)]), text(database) + "." + text(rest)
}

// text is a string as documents hold them: its length in four bytes, then itself and a zero.
func text(value []byte) string {
	if len(value) < 4 {
		return ""
	}
	found, _, _ := bytes.Cut(value[4:min(len(value), 4+longestName)], []byte{0})
	return string(found)
}
