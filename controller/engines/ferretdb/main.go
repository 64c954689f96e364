// A FerretDB that listens on one address and keeps its data in SQLite files: its own command does not build from the
// module alone.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:27017", "HOST:PORT of the MongoDB protocol")
	data := flag.String("data", "", "directory of the SQLite files, with a slash at its end")
	flag.Parse()

	// Below errors it writes every refused request in full.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *listen},
		Handler:   "sqlite",
		SQLiteURL: "file:" + *data,
		Logger:    logger,
	})
	if err != nil {
		logger.Error("cannot start", "error", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := server.Run(ctx); err != nil {
		logger.Error("ended", "error", err)
		os.Exit(1)
	}
}
