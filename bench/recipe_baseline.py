"""What the official package deepseek-recipe needs for the conversation of recipe_bench: prints one line of JSON.

usage: recipe_baseline.py REQUEST.json TOKENIZER.json ROUNDS
"""
import json
import statistics
import sys
import time

import deepseek_recipe as official


def median_ms(work, rounds):
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1e3)
    return statistics.median(times)


def main():
    request_path, tokenizer_path, rounds = sys.argv[1:4]
    body = open(request_path, encoding="utf-8").read()
    encoding = official.DeepseekV41Encoding().with_tokenizer(official.Tokenizer.from_file(tokenizer_path))
    options = official.ConversionOptions()

    def converted():
        return official.ChatCompletionRequest(body).convert(options).conversation

    conversation = converted()
    print(json.dumps({
        "tokens": len(encoding.encode(conversation)),
        "encode_ms": median_ms(lambda: encoding.encode(conversation), int(rounds)),
        "request_ms": median_ms(lambda: encoding.encode(converted()), int(rounds)),
    }))


main()
