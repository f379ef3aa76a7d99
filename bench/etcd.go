package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// etcdServer is one etcd server with its default settings, without TLS.
type etcdServer struct {
	cmd    *exec.Cmd
	input  io.Closer // input of the shell; when it is closed, the shell stops etcd and removes its directory
	listen string
}

// etcdScript runs etcd until the input of the shell ends, also if bench was killed.
const etcdScript = `
dir=$1
shift
"$@" </dev/null >"$dir/log" 2>&1 &
pid=$!
cat >/dev/null
kill "$pid"
wait "$pid"
rm -rf "$dir"
`

func startEtcd() (*etcdServer, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, errors.New("bench: there is no etcd: install etcd-server")
	}
	clientPort, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	peerPort, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	clients, peers := testenv.Loopback(clientPort), testenv.Loopback(peerPort)
	dir, err := os.MkdirTemp("", "bench-etcd-")
	if err != nil {
		return nil, err
	}
	s := &etcdServer{listen: clients}
	s.cmd = exec.Command("/bin/sh", "-c", etcdScript, "bench-etcd", dir, path, "--data-dir", dir+"/data", "--name", "bench",
		"--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers,
		"--initial-cluster", "bench=http://"+peers)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of bench must not end the shell before it has removed the directory
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if s.healthy() {
			return s, nil
		}
		if time.Since(began) > 60*time.Second {
			said, _ := os.ReadFile(dir + "/log")
			s.stop()
			return nil, fmt.Errorf("etcd did not start: %s", said)
		}
	}
}

func (s *etcdServer) healthy() bool {
	resp, err := http.Get("http://" + s.listen + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return strings.Contains(string(text), `"health":"true"`) || strings.Contains(string(text), `"health": "true"`)
}

func (s *etcdServer) stop() {
	s.input.Close()
	_ = s.cmd.Wait() // the exit status is that of rm, and does not matter
}

func (s *etcdServer) addr() string { return s.listen }

// readCost returns zero: read asks for the metrics by plain HTTP, and the
// metrics count gRPC only.
func (s *etcdServer) readCost() counters { return counters{} }

func (s *etcdServer) version() string {
	out, err := exec.Command("etcd", "--version").Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "etcd Version: ")
}

// read adds up the metrics of the gRPC services. Messages of streams (watches,
// keep-alives of leases) count as packets.
func (s *etcdServer) read() (c counters, err error) {
	resp, err := http.Get("http://" + s.listen + "/metrics")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "grpc_server_msg_received_total":
			c.received += n
		case "grpc_server_msg_sent_total":
			c.sent += n
		case "etcd_network_client_grpc_received_bytes_total":
			c.bytesIn += n
		case "etcd_network_client_grpc_sent_bytes_total":
			c.bytesOut += n
		case "etcd_debugging_mvcc_keys_total":
			c.contenders += n
		case "etcd_debugging_mvcc_watcher_total":
			c.watchers += n
		}
	}
	return c, nil
}
