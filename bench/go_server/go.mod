module bench/go_server

go 1.24
