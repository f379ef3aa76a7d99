package redisdriver

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// Each script is the text of first.lua, common.lua and the named file. A file may
// end sooner, before the line "-- common.lua": to define the functions there
// takes longer than the rest of a short script.
var (
	openScript       = script("open")
	beatScript       = script("beat")
	createScript     = script("create")
	cancelScript     = script("cancel")
	deleteScript     = script("delete")
	replaceScript    = script("replace")
	lookScript       = script("look")
	readScript       = script("read")
	walkScript       = script("walk")
	removeScript     = script("remove")
	setValueScript   = script("setvalue")
	valueScript      = script("value")
	watchScript      = script("watch")
	watchQueueScript = script("watchqueue")
	closeScript      = script("close")
)

func script(name string) *redis.Script { return redis.NewScript(source(name)) }

func source(name string) string {
	before, after, found := strings.Cut(text(name), "-- common.lua\n")
	if !found {
		before, after = "", before
	}
	return text("first") + before + text("common") + after
}

func text(name string) string {
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded, so always present
	}
	return string(b)
}
