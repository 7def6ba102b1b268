"""`penstock console`: pages on 127.0.0.1 that call the service with your own credentials (docs/adr/0050).

How a page is made, by the example of pages/topics.py:

1. A module in `pages/` has functions that take an `Asked` and give a `Shown` (a template and its facts) or, after a
   POST, a `Moved` (the path to go to, and a sentence that says what was done). They run in threads, so they call
   `asked.admin` as a script would. They raise `PenstockError` as it comes: the server makes a page of it.
2. Its `PAGE` lists the routes and its name in the menu. `site.py` lists the pages.
3. A template in `templates/` extends `layout.html` and fills `content`. `parts.html` has what pages share: `pager`,
   `search`, `empty`, `field`, `submit`, `form`, and `destructive`, which asks for the name. Call `asked.check_name`
   in the function that such a form posts to.
4. Values are text. Never mark one as safe, and make paths with `path_of`: names may hold anything.
5. A page asks the service only for what it shows. Long lists go through `paged`. Every page works without JavaScript.
6. tests/sdk/console has a `Visitor`, a browser without a window: test the page, its forms, and hostile names with it.
"""
