// Prints what a URL answers, by Go's own client.
package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	io.Copy(os.Stdout, answer.Body)
}
