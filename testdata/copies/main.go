// Command copies makes the copies that go vet must report: the lines that end in
// "copied".
package main

import "github.com/dlock-go/dlock"

func main() {
	client := new(dlock.Client)
	other := *client // copied
	_ = &other

	mutex := client.RWMutex("stock/42")
	field := struct{ mutex dlock.RWMutex }{*mutex} // copied
	_ = &field

	lock := new(dlock.Lock)
	again := *lock // copied
	_ = &again

	share := client.RWMutex // a method value copies nothing
	_ = share
}

func pass(lock dlock.Lock) {} // copied
